//! The sign-up page.

use askama::Template;
use axum::response::Response;

use super::sign_in::{begin_attempt, begin_session};
use crate::console::form::Form;
use crate::console::session::CurrentUser;
use crate::console::{NO_SECTION, PageError, Site, page};
use crate::domain::{Email, NewAccount};

#[derive(Template)]
#[template(path = "console/sign-up.html")]
struct SignUp<'a> {
    site: Site<'a>,
    form: &'a Form,
}

pub async fn show(user: CurrentUser) -> Result<Response, PageError> {
    refuse_if_closed(&user)?;
    if user.session.is_some() {
        return Ok(user.redirect(""));
    }
    Ok(show_form(&user, &Form::default()))
}

/// Creates the account and signs it in. The response reveals whether an address has an account already; the limit on
/// attempts bounds guessing.
pub async fn submit(user: CurrentUser, mut form: Form) -> Result<Response, PageError> {
    refuse_if_closed(&user)?;
    let email = form.parse("email", "Enter an e-mail address.", "The address", |text| Email::parse_entered(&text));
    let password = form.new_password("password", "Enter a password.", "The password");
    let (Some(email), Some(password)) = (email, password) else { return Ok(show_form(&user, &form)) };
    let digest = begin_attempt(&user, &email)?.hash(password).await;
    let actor = user.actor_of(&email);
    let new = NewAccount::customer(email, Some(digest.clone()));
    let Some(account) = user.api().store.create_account(new, actor).await? else {
        form.refuse("email", "There is already an account with this address. Sign in instead.");
        return Ok(show_form(&user, &form));
    };
    let signed_in = begin_session(&user, account, digest, "").await?;
    // `None` if the operator has changed the password meanwhile, on the command line.
    Ok(signed_in.unwrap_or_else(|| user.redirect("sign-in")))
}

fn refuse_if_closed(user: &CurrentUser) -> Result<(), PageError> {
    let closed = || PageError::forbidden("Sign-up is closed. Ask the operator of this service for an account.");
    user.console.may_sign_up.then_some(()).ok_or_else(closed)
}

fn show_form(user: &CurrentUser, form: &Form) -> Response {
    let site = Site::new(user, "Create an account", NO_SECTION);
    page(form.status(), &SignUp { site, form })
}
