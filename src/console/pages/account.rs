//! The account page: change the password, delete the account.

use askama::Template;
use axum::response::Response;

use super::sign_in::{begin_confirmation, check_password};
use crate::console::error::PageError;
use crate::console::form::submission::{Field, Form, status};
use crate::console::layout::{NO_SECTION, Site, page};
use crate::console::session::current_user::SignedIn;
use crate::console::shown::times::day;
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

pub async fn show(who: SignedIn) -> Response {
    account(&who, Field::default(), Field::default())
}

pub async fn change_password(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    let mut current = fields.password("current", "Enter your password.");
    let (new, chosen) = fields.new_password("new", "Enter a new password.", "The new password");
    let Some(chosen) = chosen.filter(|_| current.error.is_none()) else {
        return Ok(account(&who, current, new));
    };
    let place = begin_confirmation(&who)?;
    let checked = check_password(&who, &place, &who.session.email, fields.secret("current")).await?;
    if let Some((account, checked)) = checked {
        let digest = place.hash(chosen).await;
        let token = SessionToken::generate();
        let session = NewSession { hash: token.hash(), account, now: who.api().clock.steady() };
        if who.api().store.change_password(session, checked, digest, who.actor()).await? {
            return Ok(who.redirect_signed_in("account?notice=password-changed", &token));
        }
    }
    current.error = Some(WRONG.to_owned());
    Ok(account(&who, current, new))
}

pub async fn confirm_deletion(who: SignedIn) -> Response {
    deletion(&who, Field::default())
}

pub async fn delete(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    let mut password = fields.password("password", "Enter your password.");
    if password.error.is_some() {
        return Ok(deletion(&who, password));
    }
    let place = begin_confirmation(&who)?;
    if let Some((account, checked)) =
        check_password(&who, &place, &who.session.email, fields.secret("password")).await?
        && who.api().store.delete_account(account, Some(checked), who.actor()).await?
    {
        who.api().api_keys.note_change();
        who.api().account_requests.forget(account);
        return Ok(who.redirect_signed_out("?notice=account-deleted"));
    }
    password.error = Some(WRONG.to_owned());
    Ok(deletion(&who, password))
}

const WRONG: &str = "The password is wrong.";

fn account(who: &SignedIn, current: Field, new: Field) -> Response {
    let site = Site::new(who, "Account", "account");
    page(status(&[&current, &new]), &Account { site, since: day(who.session.account_created_at), current, new })
}

fn deletion(who: &SignedIn, password: Field) -> Response {
    let site = Site::new(who, "Delete your account", NO_SECTION);
    page(status(&[&password]), &Deletion { site, password })
}
