//! The link by which the owner of an account chooses a password: made by staff, or at the sign-in with a temporary password.

use askama::Template;
use axum::http::header::REFERRER_POLICY;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use crate::console::form::{Form, Path};
use crate::console::session::{CurrentUser, SignedIn};
use crate::console::{NO_SECTION, PageError, Site, page};
use crate::domain::account::{LINK_LIFETIME, PasswordDigest};
use crate::domain::{Account, AccountId, Actor, ApiKey, Email, KeyHash, Role, Secret};
use crate::store;

#[derive(Template)]
#[template(path = "console/link.html")]
struct Link<'a> {
    site: Site<'a>,
    email: &'a str,
    link: String,
}

#[derive(Template)]
#[template(path = "console/password.html")]
struct Choice<'a> {
    site: Site<'a>,
    email: &'a str,
    form: &'a Form,
}

/// Creates a link. Its token has the form of an API key, which no log shows. `None` if the store refuses it.
pub async fn create(
    user: &CurrentUser,
    account: AccountId,
    checked: Option<PasswordDigest>,
    actor: Actor,
) -> store::Result<Option<String>> {
    let (store, token) = (&user.api().store, ApiKey::generate(user.api().store.deployment()));
    let until = user.api().clock.steady().plus(LINK_LIFETIME);
    let is_created = store.create_link(account, token.hash(), until, checked, actor).await?;
    Ok(is_created.then(|| format!("password/{}", token.expose())))
}

pub async fn make(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    if who.session.role != Role::Staff {
        return Err(PageError::forbidden("Only staff can make links."));
    }
    let unknown = || PageError::not_found("There is no account with this address.");
    let email = Email::parse_entered(fields.get("email")).map_err(|_| unknown())?;
    let account = who.api().store.find_account(&email).await?.ok_or_else(unknown)?;
    if account.role == Role::Staff {
        return Err(PageError::forbidden("A link for staff is made on the command line: petstore account reset-link."));
    }
    if account.suspended_at.is_some() {
        return Err(PageError::forbidden(
            "The account is suspended. It is resumed on the command line: petstore account resume.",
        ));
    }
    let path = create(&who, account.id, None, who.actor()).await?.ok_or_else(unknown)?;
    let link = format!("{}/{path}", who.addresses.base_url.root());
    let site = Site::new(&who, "A link for a new password", "audit");
    Ok(page(StatusCode::OK, &Link { site, email: account.email.as_str(), link }))
}

pub async fn show(user: CurrentUser, Path(token): Path<String>) -> Result<Response, PageError> {
    let (account, _) = find(&user, &token).await?;
    Ok(choice(&user, &account, &Form::default()))
}

pub async fn submit(user: CurrentUser, Path(token): Path<String>, mut form: Form) -> Result<Response, PageError> {
    let (account, hash) = find(&user, &token).await?;
    let chosen = form.new_password("new", "Enter a new password.", "The new password");
    let Some(chosen) = chosen else { return Ok(choice(&user, &account, &form)) };
    let place = user.console.passwords.place()?;
    let current = user.api().store.find_password(&account.email).await?.map(|(_, digest)| digest);
    // A temporary password must not stay, because staff know it.
    if place.check(Secret::new(form.get("new")), current).await {
        form.refuse("new", "Choose a password other than the current one.");
        return Ok(choice(&user, &account, &form));
    }
    let digest = place.hash(chosen).await;
    let (now, actor) = (user.api().clock.steady(), user.actor_of(&account.email));
    match user.api().store.use_link(hash, digest, now, actor).await? {
        true => Ok(user.redirect_signed_out("sign-in?notice=password-chosen")),
        false => Err(ended()),
    }
}

async fn find(user: &CurrentUser, token: &str) -> Result<(Account, KeyHash), PageError> {
    let (store, now) = (&user.api().store, user.api().clock.steady());
    let hash = ApiKey::hash_presented(token.as_bytes(), store.deployment()).ok_or_else(ended)?;
    Ok((store.find_link(&hash, now).await?.ok_or_else(ended)?, hash))
}

fn ended() -> PageError {
    PageError::not_found("This link was used, or has expired. Ask for another one.")
}

fn choice(user: &CurrentUser, account: &Account, form: &Form) -> Response {
    let site = Site::new(user, "Choose a password", NO_SECTION);
    let mut response = page(form.status(), &Choice { site, email: account.email.as_str(), form });
    // Requests that the page leads to do not have its path, but the form has its origin.
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    response
}
