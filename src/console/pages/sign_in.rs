//! Signing in and out.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::link;
use crate::console::form::Form;
use crate::console::session::{CurrentUser, QueuePlace, SignedIn, page_to_return_to};
use crate::console::{Console, NO_SECTION, PageError, Site, page};
use crate::domain::account::PasswordDigest;
use crate::domain::session::NewSession;
use crate::domain::{AccountId, Email, Secret, SessionToken};

#[derive(Template)]
#[template(path = "console/sign-in.html")]
struct SignIn<'a> {
    site: Site<'a>,
    form: &'a Form,
    /// The page to show afterwards. Empty for the start page.
    page: &'a str,
}

pub async fn show(user: CurrentUser, uri: Uri) -> Response {
    let query = Form::of_query(&uri);
    let page = page_after(&query);
    if user.session.is_some() {
        return user.redirect(page);
    }
    // Without the other parameters, because a link must not fill in the form.
    show_form(&user, &Form::of(&[("page", page)]))
}

pub async fn submit(user: CurrentUser, mut form: Form) -> Result<Response, PageError> {
    let password = form.password("password", "Enter your password.");
    let email = form.parse("email", "Enter your e-mail address.", "The address", |text| Email::parse_entered(&text));
    let (Some(email), Some(password)) = (email, password) else { return Ok(show_form(&user, &form)) };
    let place = begin_attempt(&user, &email)?;
    let Some((account, checked)) = check_password(&user, &place, &email, password).await? else {
        return Ok(refused(&user, form));
    };
    if let Some(signed_in) = begin_session(&user, account, checked.clone(), page_after(&form)).await? {
        return Ok(signed_in);
    }
    // The audit has the address as it is stored.
    let Some(found) = user.api().store.find_account(&email).await? else { return Ok(refused(&user, form)) };
    if found.suspended_at.is_some() {
        form.refuse("email", "This account is suspended. Ask the operator of this service.");
        return Ok(show_form(&user, &form));
    }
    // `None` if the password was changed while this one was being checked.
    let link = link::create(&user, account, Some(checked), user.actor_of(&found.email)).await?;
    Ok(link.map_or_else(|| refused(&user, form), |path| user.redirect(&path)))
}

fn page_after(form: &Form) -> &str {
    page_to_return_to(form.get("page")).unwrap_or_default()
}

/// Begins a session with a new token, ends the user's previous one, and redirects to `page`. `None` if `checked` is no
/// longer the digest of the account's password, or the account is suspended or has a temporary password.
pub async fn begin_session(
    user: &CurrentUser,
    account: AccountId,
    checked: PasswordDigest,
    page: &str,
) -> Result<Option<Response>, PageError> {
    if let Some(before) = &user.session {
        user.api().store.delete_session(before.hash).await?;
    }
    let token = SessionToken::generate();
    let session = NewSession { hash: token.hash(), account, now: user.api().clock.steady() };
    let begun = user.api().store.create_session(session, checked).await?;
    Ok(begun.then(|| user.redirect_signed_in(page, &token)))
}

/// Responds with 204 if the password queue has room, otherwise with 503 and `Retry-After`.
pub async fn turn(State(console): State<Arc<Console>>) -> Result<StatusCode, PageError> {
    console.passwords.place()?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn sign_out(user: CurrentUser) -> Result<Response, PageError> {
    if let Some(session) = &user.session {
        user.api().store.delete_session(session.hash).await?;
    }
    Ok(user.redirect_signed_out("?notice=signed-out"))
}

/// Returns the account, and the digest that the password matched. `None` if the password is wrong.
///
/// Does the same work if there is no account, so that the response and its time do not reveal whether there is one.
pub async fn check_password(
    user: &CurrentUser,
    place: &QueuePlace<'_>,
    email: &Email,
    password: Secret,
) -> Result<Option<(AccountId, PasswordDigest)>, PageError> {
    let known = user.api().store.find_password(email).await?;
    let matches = place.check(password, known.as_ref().map(|(_, digest)| digest.clone())).await;
    if !matches {
        // Names the account by its id. An address without an account is not logged, because people enter passwords there.
        let account = known.as_ref().map_or("unknown".to_owned(), |(account, _)| account.0.to_string());
        if user.console.wrong_passwords.is_first(&account) {
            let request_id = user.client.request_id.to_str().unwrap_or_default();
            tracing::warn!(request_id, account, "wrong password");
        }
    }
    Ok(known.filter(|_| matches))
}

/// Counts an attempt to sign in or up. Fails if there were too many. Attempts rejected for lack of hashing capacity are
/// not counted.
pub fn begin_attempt<'a>(user: &'a CurrentUser, email: &Email) -> Result<QueuePlace<'a>, PageError> {
    let place = user.console.passwords.place()?;
    let counted = user.console.throttle.count(user.client.address, email, user.api().clock.steady());
    counted.map(|()| place).map_err(|wait| throttled(user, wait))
}

/// Counts an attempt of a signed-in user to confirm a change, like [`begin_attempt`].
pub fn begin_confirmation(who: &SignedIn) -> Result<QueuePlace<'_>, PageError> {
    let place = who.console.passwords.place()?;
    let counted = who.console.throttle.count_in_session(who.session.hash, who.api().clock.steady());
    counted.map(|()| place).map_err(|wait| throttled(who, wait))
}

fn throttled(user: &CurrentUser, wait: Duration) -> PageError {
    user.api().password_counters.throttled.increment();
    PageError::too_many("attempts", wait)
}

fn refused(user: &CurrentUser, mut form: Form) -> Response {
    form.refuse("password", "The e-mail address or the password is wrong.");
    show_form(user, &form)
}

fn show_form(user: &CurrentUser, form: &Form) -> Response {
    let site = Site::new(user, "Sign in", NO_SECTION);
    page(form.status(), &SignIn { site, form, page: page_after(form) })
}
