//! The account of who is signed in: its password, and its end.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::current_user::{Client, SignedIn, with_token, without_token};
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::{NO_SECTION, Site, page};
use super::sign_in::{begin_attempt, check_password};
use super::times::day;
use crate::domain::SessionToken;
use crate::domain::session::NewSession;
use crate::http::Api;

#[derive(Template)]
#[template(path = "console/account.html")]
struct Account<'a> {
    site: Site<'a>,
    since: String,
    current: Field,
    new: Field,
}

#[derive(Template)]
#[template(path = "console/account-delete.html")]
struct Deletion<'a> {
    site: Site<'a>,
    password: Field,
}

pub async fn show(State(api): State<Api>, who: SignedIn) -> Response {
    account(&api, &who, StatusCode::OK, Field::default(), Field::default())
}

pub async fn change_password(
    State(api): State<Api>,
    who: SignedIn,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    let mut current = fields.password("current", "Enter your password.");
    let (new, chosen) = fields.new_password("new", "Enter a new password.", "The new password");
    let Some(chosen) = chosen.filter(|_| current.error.is_none()) else {
        return Ok(account(&api, &who, StatusCode::UNPROCESSABLE_ENTITY, current, new));
    };
    let place = begin_attempt(&api, from, &who.session.email)?;
    let checked = check_password(&api, &place, &who.session.email, fields.secret("current")).await?;
    if let Some((account, checked)) = checked {
        let digest = place.hash(chosen).await;
        let token = SessionToken::generate();
        let session = NewSession { hash: token.hash(), account, now: api.clock.steady() };
        if api.store.change_password(session, checked, digest).await? {
            return Ok(with_token(&api, &token, who.user.redirect("account?notice=password-changed")));
        }
    }
    current.error = Some(WRONG.to_owned());
    Ok(account(&api, &who, StatusCode::UNPROCESSABLE_ENTITY, current, new))
}

pub async fn confirm_deletion(State(api): State<Api>, who: SignedIn) -> Response {
    deletion(&api, &who, StatusCode::OK, Field::default())
}

pub async fn delete(State(api): State<Api>, who: SignedIn, from: Client, fields: Form) -> Result<Response, PageError> {
    let mut password = fields.password("password", "Enter your password.");
    if password.error.is_some() {
        return Ok(deletion(&api, &who, StatusCode::UNPROCESSABLE_ENTITY, password));
    }
    let place = begin_attempt(&api, from, &who.session.email)?;
    if let Some((account, checked)) =
        check_password(&api, &place, &who.session.email, fields.secret("password")).await?
        && api.store.delete_account(account, Some(checked), api.clock.now()).await?
    {
        api.api_keys.note_change();
        return Ok(without_token(&api, who.user.redirect("?notice=account-deleted")));
    }
    password.error = Some(WRONG.to_owned());
    Ok(deletion(&api, &who, StatusCode::UNPROCESSABLE_ENTITY, password))
}

const WRONG: &str = "The password is wrong.";

fn account(api: &Api, who: &SignedIn, status: StatusCode, current: Field, new: Field) -> Response {
    let site = Site::new(api, &who.user, "Account", "account");
    page(status, &Account { site, since: day(who.session.account_created_at), current, new })
}

fn deletion(api: &Api, who: &SignedIn, status: StatusCode, password: Field) -> Response {
    page(status, &Deletion { site: Site::new(api, &who.user, "Delete your account", NO_SECTION), password })
}
