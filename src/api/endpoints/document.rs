//! The OpenAPI document, also as of a day that the request prefers.

use axum::http::header::VARY;
use axum::http::{HeaderMap, HeaderValue};

use crate::api::documents::openapi::Version;
use crate::api::error::ApiError;
use crate::api::prefer::delivery::{Called, Delivery};
use crate::api::prefer::header::{PREFER, Prefer, confirm};
use crate::api::prefer::preference::Preference;
use crate::api::prefer::preferences::Preferences;
use crate::api::state::Api;

/// Responds with the document as of the day that the request prefers. Without a preference, as of now.
///
/// # Errors
///
/// Fails if the request prefers strict handling of preferences and has one that is ignored.
pub fn serve(api: &Api, version: Version, headers: &HeaderMap) -> Result<Called, ApiError> {
    let now = api.clock.now();
    if api.simulator.is_none() {
        return Ok(api.documents.serve(version, now, headers).into());
    }
    let preferences = Preferences::of(&Prefer::of(headers), now);
    let is_for_operation = preferences.find(Preference::operation).is_some();
    let is_date = |it: &Preference| matches!(it, Preference::Date(_));
    let applies = |it: &Preference| is_for_operation || is_date(it) || matches!(it, Preference::Strict(_));
    let reject = |it: &Preference| (!applies(it)).then(|| "does not apply to the OpenAPI document".to_owned());
    preferences.check_strictly(reject).map_err(|invalid| ApiError::invalid_value("Prefer", &invalid))?;
    let date = preferences.given.iter().find(|it| is_date(it) && !is_for_operation);
    let day = date.and_then(|_| preferences.day(now)).unwrap_or(now);
    let mut called = Called::from(api.documents.serve(version, day, headers));
    if let Some(date) = date {
        let delivery = Delivery { applied: date.to_string(), ..Delivery::default() };
        confirm(&delivery.applied, called.response.headers_mut());
        called.delivery = Some(Box::new(delivery));
    }
    // A cache must not return the document of another day.
    called.response.headers_mut().append(VARY, HeaderValue::from(PREFER));
    Ok(called)
}
