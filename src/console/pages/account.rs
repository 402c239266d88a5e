//! The account page: change the password, delete the account.

use askama::Template;
use axum::response::Response;

use super::sign_in::{begin_confirmation, check_password};
use crate::console::form::Form;
use crate::console::session::SignedIn;
use crate::console::shown::times;
use crate::console::{NO_SECTION, PageError, Site, page};
use crate::domain::SessionToken;
use crate::domain::session::NewSession;

#[derive(Template)]
#[template(path = "console/account.html")]
struct Account<'a> {
    site: Site<'a>,
    since: String,
    form: &'a Form,
}

#[derive(Template)]
#[template(path = "console/account-delete.html")]
struct Deletion<'a> {
    site: Site<'a>,
    form: &'a Form,
}

pub async fn show(who: SignedIn) -> Response {
    account(&who, &Form::default())
}

pub async fn change_password(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    refuse_another(&who, &mut form, "current");
    let current = form.password("current", "Enter your password.");
    let new = form.new_password("new", "Enter a new password.", "The new password");
    let (Some(current), Some(new), false) = (current, new, form.has_errors()) else { return Ok(account(&who, &form)) };
    let place = begin_confirmation(&who)?;
    if let Some((account, checked)) = check_password(&who, &place, &who.session.email, current).await? {
        let digest = place.hash(new).await;
        let token = SessionToken::generate();
        let session = NewSession { hash: token.hash(), account, now: who.api().clock.steady() };
        if who.api().store.change_password(session, checked, digest, who.actor()).await? {
            return Ok(who.redirect_signed_in("account?notice=password-changed", &token));
        }
    }
    form.refuse("current", WRONG);
    Ok(account(&who, &form))
}

pub async fn confirm_deletion(who: SignedIn) -> Response {
    deletion(&who, &Form::default())
}

pub async fn delete(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    refuse_another(&who, &mut form, "password");
    let password = form.password("password", "Enter your password.");
    let (Some(password), false) = (password, form.has_errors()) else { return Ok(deletion(&who, &form)) };
    let place = begin_confirmation(&who)?;
    if let Some((account, checked)) = check_password(&who, &place, &who.session.email, password).await?
        && who.api().store.delete_account(account, Some(checked), who.actor()).await?
    {
        who.api().api_keys.note_change();
        who.api().account_requests.forget(account);
        return Ok(who.redirect_signed_out("?notice=account-deleted"));
    }
    form.refuse("password", WRONG);
    Ok(deletion(&who, &form))
}

/// Refuses a form that shows another account, because this one has signed in since. Before other errors of the field, since the
/// page that shows them is that of this account.
fn refuse_another(who: &SignedIn, form: &mut Form, field: &'static str) {
    let shown = form.get("email");
    if !shown.is_empty() && !who.session.email.is_named(shown) {
        form.refuse(field, "Since you opened this page, you have signed in as another account. Nothing was changed.");
    }
}

const WRONG: &str = "The password is wrong.";

fn account(who: &SignedIn, form: &Form) -> Response {
    let site = Site::new(who, "Account", "account");
    page(form.status(), &Account { site, since: times::day(who.session.account_created_at), form })
}

fn deletion(who: &SignedIn, form: &Form) -> Response {
    let site = Site::new(who, "Delete your account", NO_SECTION);
    page(form.status(), &Deletion { site, form })
}
