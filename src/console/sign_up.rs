//! The sign-up page.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Console;
use super::current_user::{Client, CurrentUser};
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::{NO_SECTION, Site, page};
use super::sign_in::{begin_attempt, begin_session};
use crate::domain::Email;

#[derive(Template)]
#[template(path = "console/sign-up.html")]
struct SignUp<'a> {
    site: Site<'a>,
    email: Field,
    password: Field,
}

pub async fn show(State(console): State<Console>, user: CurrentUser) -> Result<Response, PageError> {
    refuse_if_closed(&console)?;
    if user.session.is_some() {
        return Ok(user.redirect(""));
    }
    Ok(form(&console, &user, StatusCode::OK, Field::default(), Field::default()))
}

/// Creates the account and signs it in. The response reveals whether an address has an account already; the limit on
/// attempts bounds guessing.
pub async fn submit(
    State(console): State<Console>,
    user: CurrentUser,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    refuse_if_closed(&console)?;
    let mut email = fields.field("email");
    let address = email.parse("Enter an e-mail address.", "The address", |text| Email::parse(text.trim()));
    let (password, chosen) = fields.new_password("password", "Enter a password.", "The password");
    let (Some(address), Some(chosen)) = (address, chosen) else {
        return Ok(form(&console, &user, StatusCode::UNPROCESSABLE_ENTITY, email, password));
    };
    let digest = begin_attempt(&console, from, &address)?.hash(chosen).await;
    let Some(account) =
        console.api.store.create_account(address, Some(digest.clone()), console.api.clock.now()).await?
    else {
        email.error = Some("There is already an account with this address. Sign in instead.".to_owned());
        return Ok(form(&console, &user, StatusCode::UNPROCESSABLE_ENTITY, email, password));
    };
    let signed_in = begin_session(&console, &user, account, digest).await?;
    // `None` if the operator has changed the password meanwhile, on the command line.
    Ok(signed_in.unwrap_or_else(|| user.redirect("sign-in")))
}

fn refuse_if_closed(console: &Console) -> Result<(), PageError> {
    let closed = || PageError::forbidden("Sign-up is closed. Ask the operator of this service for an account.");
    console.may_sign_up().then_some(()).ok_or_else(closed)
}

fn form(console: &Console, user: &CurrentUser, status: StatusCode, email: Field, password: Field) -> Response {
    page(status, &SignUp { site: Site::new(console, user, "Create an account", NO_SECTION), email, password })
}
