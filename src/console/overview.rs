//! The first page: an introduction if signed out, the state of the store if signed in.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Console;
use super::current_user::CurrentUser;
use super::error::PageError;
use super::layout::{Site, page};
use super::plot::Plot;
use crate::config::Addresses;
use crate::domain::{PetStatus, StatusCounts, grouped};
use crate::http::deprecation;

#[derive(Template)]
#[template(path = "console/welcome.html")]
struct Welcome<'a> {
    site: Site<'a>,
    addresses: &'a Addresses,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct Overview<'a> {
    site: Site<'a>,
    addresses: &'a Addresses,
    counts: StatusCounts,
    plot: Plot,
    database: String,
    has_keys: bool,
    /// Whether to warn of the removal of `GET /pets/{petId}`.
    warns_of_removal: bool,
}

pub async fn show(State(console): State<Console>, user: CurrentUser) -> Result<Response, PageError> {
    let addresses = &*user.addresses;
    let Some(session) = &user.session else {
        let site = Site::new(&console, &user, "An animal store with an API", "");
        return Ok(page(StatusCode::OK, &Welcome { site, addresses }));
    };
    let now = console.api.clock.now();
    let overview = Overview {
        site: Site::new(&console, &user, "Overview", ""),
        addresses,
        counts: console.counts.get(&console.api.store).await?,
        plot: Plot::new(&console.api.requests.last_hour(console.api.traffic.api_requests(), now)),
        database: console.api.store.database(),
        has_keys: !console.api.store.list_keys_of(session.account, None, 1).await?.0.is_empty(),
        warns_of_removal: now < deprecation::REMOVED_AT,
    };
    Ok(page(StatusCode::OK, &overview))
}

impl Welcome<'_> {
    /// Returns a first API call.
    fn curl(&self) -> String {
        let pets = self.addresses.base_url.path("/pets?status=available");
        format!("curl '{pets}' \\\n  -H \"Authorization: Bearer $KEY\"")
    }
}

impl Overview<'_> {
    fn cards(&self) -> [(PetStatus, String); 3] {
        let StatusCounts { available, pending, sold } = self.counts;
        [(PetStatus::Available, available), (PetStatus::Pending, pending), (PetStatus::Sold, sold)]
            .map(|(status, count)| (status, grouped(count)))
    }
}
