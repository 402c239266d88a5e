//! Making an account.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::error::PageError;
use super::form::{Field, Form};
use super::page::{NO_SECTION, Site, page};
use super::sign_in::{self, begin_attempt};
use super::visitor::{Client, Visitor};
use crate::domain::Email;
use crate::domain::account::NewPassword;
use crate::http::Api;

#[derive(Template)]
#[template(path = "console/sign-up.html")]
struct SignUp<'a> {
    site: Site<'a>,
    email: Field,
    password: Field,
}

pub async fn show(State(api): State<Api>, visitor: Visitor) -> Result<Response, PageError> {
    refuse_if_closed(&api)?;
    if visitor.session.is_some() {
        return Ok(visitor.redirect(""));
    }
    Ok(form(&api, &visitor, StatusCode::OK, Field::default(), Field::default()))
}

/// Answers the same, after the same work, whether or not the address was free: who has an account here is nobody's
/// business.
pub async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    refuse_if_closed(&api)?;
    let mut email = fields.field("email");
    let mut password = Field::default();
    let address = email.parse("The address", |text| Email::parse(text.trim()));
    let chosen = match NewPassword::parse(fields.secret("password")) {
        Ok(chosen) => Some(chosen),
        Err(invalid) => {
            password.error = Some(format!("The password {invalid}."));
            None
        }
    };
    let (Some(address), Some(chosen)) = (address, chosen) else {
        return Ok(form(&api, &visitor, StatusCode::UNPROCESSABLE_ENTITY, email, password));
    };
    let digest = begin_attempt(&api, from, &address)?.hash(chosen).await;
    api.store.create_account(address, Some(digest), api.clock.now()).await?;
    Ok(sign_in::after_sign_up(&api, visitor, email))
}

fn refuse_if_closed(api: &Api) -> Result<(), PageError> {
    let closed = || PageError::forbidden("Nobody can sign up here. Ask who runs this service for an account.");
    api.console.may_sign_up().then_some(()).ok_or_else(closed)
}

fn form(api: &Api, visitor: &Visitor, status: StatusCode, email: Field, password: Field) -> Response {
    page(status, &SignUp { site: Site::new(api, visitor, "Create an account", NO_SECTION), email, password })
}
