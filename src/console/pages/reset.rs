//! The page on which staff reset a staging store.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use crate::console::session::SignedIn;
use crate::console::{NO_SECTION, PageError, Site, page};
use crate::domain::{Deployment, Role, sample_animals};
use crate::store::{Contents, StoreError};

#[derive(Template)]
#[template(path = "console/reset.html")]
struct Reset<'a> {
    site: Site<'a>,
    deleted: Contents,
}

pub async fn confirm(who: SignedIn) -> Result<Response, PageError> {
    check(&who)?;
    let deleted = who.api().store.before_reset().await.map_err(refusal)?;
    let site = Site::new(&who, "Reset this store", NO_SECTION);
    Ok(page(StatusCode::OK, &Reset { site, deleted }))
}

pub async fn reset(who: SignedIn) -> Result<Response, PageError> {
    check(&who)?;
    who.api().store.reset(Box::new(sample_animals()), who.actor(), || false).await.map_err(refusal)?;
    Ok(who.redirect("?notice=store-reset"))
}

fn check(who: &SignedIn) -> Result<(), PageError> {
    match (who.session.role, who.api().store.deployment()) {
        (Role::Staff, Deployment::Staging) => Ok(()),
        _ => Err(PageError::forbidden("Only staff can reset a store, and only a staging store.")),
    }
}

fn refusal(error: StoreError) -> PageError {
    match error {
        StoreError::Refused(_) => PageError::forbidden(
            "The service may not reset this database. Run `petstore reset` with the role that owns its tables.",
        ),
        error => error.into(),
    }
}
