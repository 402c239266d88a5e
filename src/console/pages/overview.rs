//! The first page: an introduction if signed out, the state of the store if signed in.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use crate::api::Operation;
use crate::api::documents::deprecation;
use crate::console::session::CurrentUser;
use crate::console::shown::{Plot, SampleRequest};
use crate::console::{PageError, Site, page};
use crate::domain::{Deployment, PageQuery, PetStatus, Role, StatusCounts};

#[derive(Template)]
#[template(path = "console/welcome.html")]
struct Welcome<'a> {
    site: Site<'a>,
    /// A first API call.
    request: SampleRequest,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct Overview<'a> {
    site: Site<'a>,
    counts: StatusCounts,
    plot: Plot,
    /// Number of failed requests among the latest of the account.
    failed: usize,
    has_keys: bool,
    may_reset: bool,
    /// False once `GET /pets/{petId}` is removed.
    warns_of_removal: bool,
}

pub async fn show(user: CurrentUser) -> Result<Response, PageError> {
    let Some(session) = &user.session else {
        let site = Site::new(&user, "An animal store with an API", "");
        let url = format!("{}{}?status=available", user.addresses.base_url.as_str(), Operation::ListPets.api_path());
        return Ok(page(StatusCode::OK, &Welcome { site, request: SampleRequest::get(url) }));
    };
    let now = user.api().clock.now();
    let requests = user.api().account_requests.of(session.account);
    let overview = Overview {
        site: Site::new(&user, "Overview", ""),
        counts: user.api().pet_counts.recent(&user.api().store).await?,
        plot: Plot::new(&user.api().requests.last_hour(|| user.api().traffic.api_requests())),
        failed: requests.iter().filter(|request| request.is_failed()).count(),
        has_keys: !user.api().store.list_keys_of(session.account, &PageQuery::newest(), now).await?.0.is_empty(),
        may_reset: session.role == Role::Staff && user.api().store.deployment() == Deployment::Staging,
        warns_of_removal: now < deprecation::REMOVED_AT,
    };
    Ok(page(StatusCode::OK, &overview))
}
