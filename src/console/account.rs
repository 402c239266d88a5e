//! The account page: change the password, delete the account.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Console;
use super::current_user::{Client, SignedIn, with_token, without_token};
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::{NO_SECTION, Site, page};
use super::sign_in::{begin_attempt, check_password};
use super::times::day;
use crate::domain::SessionToken;
use crate::domain::session::NewSession;

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

pub async fn show(State(console): State<Console>, who: SignedIn) -> Response {
    account(&console, &who, StatusCode::OK, Field::default(), Field::default())
}

pub async fn change_password(
    State(console): State<Console>,
    who: SignedIn,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    let mut current = fields.password("current", "Enter your password.");
    let (new, chosen) = fields.new_password("new", "Enter a new password.", "The new password");
    let Some(chosen) = chosen.filter(|_| current.error.is_none()) else {
        return Ok(account(&console, &who, StatusCode::UNPROCESSABLE_ENTITY, current, new));
    };
    let place = begin_attempt(&console, from, &who.session.email)?;
    let checked = check_password(&console, &place, &who.session.email, fields.secret("current")).await?;
    if let Some((account, checked)) = checked {
        let digest = place.hash(chosen).await;
        let token = SessionToken::generate();
        let session = NewSession { hash: token.hash(), account, now: console.api.clock.steady() };
        if console.api.store.change_password(session, checked, digest).await? {
            return Ok(with_token(&console, &token, who.user.redirect("account?notice=password-changed")));
        }
    }
    current.error = Some(WRONG.to_owned());
    Ok(account(&console, &who, StatusCode::UNPROCESSABLE_ENTITY, current, new))
}

pub async fn confirm_deletion(State(console): State<Console>, who: SignedIn) -> Response {
    deletion(&console, &who, StatusCode::OK, Field::default())
}

pub async fn delete(
    State(console): State<Console>,
    who: SignedIn,
    from: Client,
    fields: Form,
) -> Result<Response, PageError> {
    let mut password = fields.password("password", "Enter your password.");
    if password.error.is_some() {
        return Ok(deletion(&console, &who, StatusCode::UNPROCESSABLE_ENTITY, password));
    }
    let place = begin_attempt(&console, from, &who.session.email)?;
    if let Some((account, checked)) =
        check_password(&console, &place, &who.session.email, fields.secret("password")).await?
        && console.api.store.delete_account(account, Some(checked), console.api.clock.now()).await?
    {
        console.api.api_keys.note_change();
        return Ok(without_token(&console, who.user.redirect("?notice=account-deleted")));
    }
    password.error = Some(WRONG.to_owned());
    Ok(deletion(&console, &who, StatusCode::UNPROCESSABLE_ENTITY, password))
}

const WRONG: &str = "The password is wrong.";

fn account(console: &Console, who: &SignedIn, status: StatusCode, current: Field, new: Field) -> Response {
    let site = Site::new(console, &who.user, "Account", "account");
    page(status, &Account { site, since: day(who.session.account_created_at), current, new })
}

fn deletion(console: &Console, who: &SignedIn, status: StatusCode, password: Field) -> Response {
    page(status, &Deletion { site: Site::new(console, &who.user, "Delete your account", NO_SECTION), password })
}
