//! Signing in and out.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::current_user::{Client, CurrentUser, with_token, without_token};
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::{NO_SECTION, Site, page};
use super::password_hasher::Place;
use crate::domain::account::PasswordDigest;
use crate::domain::session::NewSession;
use crate::domain::{AccountId, Email, Secret, SessionToken};
use crate::http::Api;

#[derive(Template)]
#[template(path = "console/sign-in.html")]
struct SignIn<'a> {
    site: Site<'a>,
    email: Field,
    password: Field,
}

pub async fn show(State(api): State<Api>, user: CurrentUser) -> Response {
    if user.session.is_some() {
        return user.redirect("");
    }
    form(&api, &user, StatusCode::OK, Field::default(), Field::default())
}

pub async fn submit(
    State(api): State<Api>,
    user: CurrentUser,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    let mut email = fields.field("email");
    let password = fields.password("password", "Enter your password.");
    let address = email.parse("Enter your e-mail address.", "The address", |text| Email::parse(text.trim()));
    let Some(address) = address.filter(|_| password.error.is_none()) else {
        return Ok(form(&api, &user, StatusCode::UNPROCESSABLE_ENTITY, email, password));
    };
    let place = begin_attempt(&api, from, &address)?;
    let Some((account, checked)) = check_password(&api, &place, &address, fields.secret("password")).await? else {
        return Ok(refused(&api, &user, email));
    };
    let signed_in = begin_session(&api, &user, account, checked).await?;
    // `None` if the password was changed while this one was being checked.
    Ok(signed_in.unwrap_or_else(|| refused(&api, &user, email)))
}

/// Begins a session with a new token and ends the user's previous one. `None` if `checked` is no longer the digest
/// of the account's password.
pub async fn begin_session(
    api: &Api,
    user: &CurrentUser,
    account: AccountId,
    checked: PasswordDigest,
) -> Result<Option<Response>, PageError> {
    if let Some(before) = &user.session {
        api.store.delete_session(before.hash).await?;
    }
    let token = SessionToken::generate();
    let session = NewSession { hash: token.hash(), account, now: api.clock.steady() };
    let begun = api.store.create_session(session, checked).await?;
    Ok(begun.then(|| with_token(api, &token, user.redirect(""))))
}

/// Redirects to the overview. Does not sign out, because a GET changes nothing.
pub async fn show_sign_out(user: CurrentUser) -> Response {
    user.redirect("")
}

pub async fn sign_out(State(api): State<Api>, user: CurrentUser) -> Result<Response, PageError> {
    if let Some(session) = &user.session {
        api.store.delete_session(session.hash).await?;
    }
    Ok(without_token(&api, user.redirect("?notice=signed-out")))
}

/// The account, and the digest that the password was held against, where it is the right one.
///
/// Whether there is an account or not, the same is done, so that neither the answer nor its time tells.
pub async fn check_password(
    api: &Api,
    place: &Place<'_>,
    email: &Email,
    password: Secret,
) -> Result<Option<(AccountId, PasswordDigest)>, PageError> {
    let known = api.store.find_password(email).await?;
    let matches = place.check(password, known.as_ref().map(|(_, digest)| digest.clone())).await;
    Ok(known.filter(|_| matches))
}

/// Refuses who tries too often. An attempt for which there is no place is none.
pub fn begin_attempt<'a>(api: &'a Api, Client(from): Client, email: &Email) -> Result<Place<'a>, PageError> {
    let place = api.console.passwords.place()?;
    api.console.attempts.count(from, email, api.clock.steady()).map_err(|wait| {
        api.console.refused_attempts.increment();
        PageError::too_many_attempts(wait)
    })?;
    Ok(place)
}

fn refused(api: &Api, user: &CurrentUser, email: Field) -> Response {
    let why = "The e-mail address or the password is wrong.".to_owned();
    form(api, user, StatusCode::UNPROCESSABLE_ENTITY, email, Field { error: Some(why), ..Field::default() })
}

fn form(api: &Api, user: &CurrentUser, status: StatusCode, email: Field, password: Field) -> Response {
    let site = Site::new(api, user, "Sign in", NO_SECTION);
    page(status, &SignIn { site, email, password }).into_response()
}
