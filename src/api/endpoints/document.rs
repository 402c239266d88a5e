//! The OpenAPI document, also as of a day that the request prefers.

use std::sync::Arc;

use axum::http::header::VARY;
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::Full;

use crate::api::addresses::Addresses;
use crate::api::documents::deprecation::REMOVED_AT;
use crate::api::documents::file::File;
use crate::api::documents::openapi::{Version, document};
use crate::api::error::ApiError;
use crate::api::operations::Listener;
use crate::api::prefer::delivery::{Called, Delivery};
use crate::api::prefer::header::{self, PREFER};
use crate::api::prefer::preference::Preference;
use crate::api::prefer::preferences::Preferences;
use crate::api::response::Response;
use crate::api::state::Api;
use crate::domain::Timestamp;

/// Responds with the document as of the day that the request prefers. Without a preference, as of now.
///
/// # Errors
///
/// Fails if the request prefers strict handling of preferences and has one that is ignored.
pub fn serve(api: &Api, version: Version, headers: &HeaderMap) -> Result<Called, ApiError> {
    let now = api.clock.now();
    if api.simulator.is_none() {
        return Ok(as_of(now, api, version, headers).into());
    }
    let preferences = Preferences::of(&header::line(headers), now);
    let is_for_operation = preferences.find(Preference::operation).is_some();
    let is_date = |it: &Preference| matches!(it, Preference::Date(_));
    let applies = |it: &Preference| is_for_operation || is_date(it) || matches!(it, Preference::Strict(_));
    let reject = |it: &Preference| (!applies(it)).then(|| "does not apply to the OpenAPI document".to_owned());
    preferences.check_strictly(reject).map_err(ApiError::invalid_value("Prefer"))?;
    let date = preferences.given.iter().find(|it| is_date(it) && !is_for_operation);
    let day = date.and_then(|_| preferences.day(now)).unwrap_or(now);
    let mut response = as_of(day, api, version, headers);
    // A cache must not return the document of another day.
    response.headers_mut().append(VARY, HeaderValue::from(PREFER));
    Ok(match date {
        Some(date) => Called::simulated(response, Delivery { applied: date.to_string(), ..Delivery::default() }),
        None => response.into(),
    })
}

/// Returns the document as of `now`.
fn as_of(now: Timestamp, api: &Api, version: Version, request: &HeaderMap) -> Response {
    let file = api.documents[version as usize][usize::from(now >= REMOVED_AT)].get_or_init(|| {
        let document = document(&api.addresses, api.store.deployment(), now, version);
        let lasting = "durable when the response is sent";
        let lost = "lost when this temporary store ends";
        File::new("application/json", if api.store.is_durable() { document } else { document.replace(lasting, lost) })
    });
    let addresses = api.addresses.reached_by(Listener::Store, request);
    let response = match Arc::ptr_eq(&addresses, &api.addresses) {
        true => file.respond(request),
        false => at(&addresses, file, &api.addresses).respond(request),
    };
    response.map(Full::new)
}

/// Returns a document for a client that reaches the service at other addresses than `known`. Replacing these costs little,
/// because a client can name any number of hosts.
fn at(addresses: &Addresses, file: &File, known: &Addresses) -> File {
    let urls = |addresses: &Addresses| {
        [&addresses.messages_base_url, &addresses.base_url].map(|url| format!("\"{}\"", url.as_str()))
    };
    let (from, to) = (urls(known), urls(addresses));
    let text = String::from_utf8_lossy(file.plain()).replace(&from[0], &to[0]).replace(&from[1], &to[1]);
    file.variant(&to.concat(), text)
}
