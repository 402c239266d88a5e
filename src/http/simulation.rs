//! Failures that clients request with `Prefer`, to test how they handle them. On staging only.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::http::header::{LOCATION, RETRY_AFTER, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use super::auth::{Caller, Simulated};
use super::deprecation::{self, REMOVED_AT};
use super::documented_errors::DocumentedError;
use super::error::{ApiError, Code};
use super::input::{self, RequestBody};
use super::operations::Operation::{self, CreatePet, GetPet};
use super::prefer::{PREFER, PREFERENCE_APPLIED, Preferences};
use super::rate_limit::{Quota, RATE_LIMIT, RATE_LIMIT_POLICY};
use super::response::Response;
use super::state::Api;
use crate::domain::Timestamp;

/// Range of `delay`, in milliseconds.
const DELAYS: RangeInclusive<i64> = 1..=30_000;

/// The status of a connection that was closed without a response, for the log and the metrics. nginx uses it too.
const NO_RESPONSE: u16 = 444;

/// The simulation that a request asks for. Only staging services simulate.
#[derive(Debug)]
pub struct Simulation<'s> {
    error: Option<&'s DocumentedError>,
    delay: Option<Duration>,
    drops_request: bool,
    drops_response: bool,
    date: Option<Timestamp>,
    /// The value of `Preference-Applied`.
    applied: String,
}

impl<'s> Simulation<'s> {
    /// Returns the simulation by the preferences of a request that apply to `operation`. Others are ignored. `None` if none
    /// applies, and in production, which does not look for them.
    pub fn requested(api: &'s Api, operation: Operation, headers: &HeaderMap) -> Option<Self> {
        let errors = api.simulated_errors.as_ref()?;
        // A removed operation responds with 410 even to clients without a key.
        if !headers.contains_key(PREFER) || !operation.is_documented() || operation.is_removed(api.clock.recent()) {
            return None;
        }
        let preferences = Preferences::of(headers);
        let value = |name| preferences.value(name);
        let errors = || errors.of(operation).iter();
        let with_code = value("error").and_then(|code| errors().find(|error| error.code.as_str() == code));
        let with_status =
            value("code").and_then(|status| errors().find(|error| error.code.status().as_str() == status));
        let error = with_code.or(with_status);
        let delay = value("delay").and_then(input::integer).filter(|delay| DELAYS.contains(delay));
        let (drops_request, drops_response) = (value("drop") == Some("request"), value("drop") == Some("response"));
        let date = date(&preferences, api.clock.now());
        let has_status =
            |other: &DocumentedError| error.is_some_and(|error| error.code.status() == other.code.status());
        let applied = [
            ("code", with_status.is_some_and(has_status)),
            ("error", with_code.is_some()),
            ("delay", delay.is_some()),
            ("drop", drops_request || drops_response),
            ("date", date.is_some()),
        ];
        let applied = applied.into_iter().filter(|(_, is_applied)| *is_applied);
        let applied: Vec<_> = applied.filter_map(|(name, _)| Some(format!("{name}={}", value(name)?))).collect();
        let delay = delay.map(|delay| Duration::from_millis(delay.unsigned_abs()));
        let applied = applied.join(", ");
        (!applied.is_empty()).then_some(Self { error, delay, drops_request, drops_response, date, applied })
    }

    /// Calls an operation like [`Operation::execute`], and simulates the failures that the request asks for.
    ///
    /// A dropped request, an error or a removal replaces the operation. Then the delay passes. A dropped response is
    /// discarded last, so every combination of preferences has a meaning.
    pub async fn call(
        self,
        operation: Operation,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &mut Caller,
    ) -> Result<Response, ApiError> {
        caller.authenticate(api, &head.headers).await?;
        caller.simulated = Simulated::Response;
        let is_past_removal = self.date.is_some_and(|day| day >= REMOVED_AT);
        let mut response = if self.drops_request {
            no_response()
        } else if let Some(error) = self.error {
            caller.failure = Some(error.code);
            error_response(error, operation, api, caller)
        } else {
            let executed = if operation == GetPet && is_past_removal {
                caller.quota = None;
                Err(deprecation::removed())
            } else {
                operation.execute(api, head, body, caller).await
            };
            executed.unwrap_or_else(|error| caller.answer(error))
        };
        if operation == CreatePet && is_past_removal {
            // Removed only from this response, because the one stored under an `Idempotency-Key` is the real one.
            response.headers_mut().remove(LOCATION);
        }
        if let Some(delay) = self.delay {
            tokio::time::sleep(delay).await;
        }
        if self.drops_request || self.drops_response {
            caller.simulated = Simulated::Drop;
            // Without a response, the request did not fail with this code.
            caller.failure = None;
            return Ok(no_response());
        }
        confirm(&self.applied, &mut response);
        Ok(response)
    }
}

/// Responds to a request that needs no API key, as of the day that it prefers. Without a preference, as of now.
pub fn respond_at_date(
    api: &Api,
    headers: &HeaderMap,
    caller: &mut Caller,
    respond: impl FnOnce(Timestamp) -> Response,
) -> Response {
    let now = api.clock.now();
    let preferences = api.simulated_errors.as_ref().map(|_| Preferences::of(headers));
    let preferred =
        preferences.as_ref().and_then(|preferences| Some((date(preferences, now)?, preferences.value("date")?)));
    let mut response = respond(preferred.map_or(now, |(date, _)| date));
    if let Some((_, day)) = preferred {
        caller.simulated = Simulated::Response;
        confirm(&format!("date={day}"), &mut response);
    }
    if api.is_simulating() {
        // A cache must not return the document of another day.
        response.headers_mut().append(VARY, HeaderValue::from(PREFER));
    }
    response
}

/// Returns the preferred day. `None` for days before today, because a removed operation stays removed.
fn date(preferences: &Preferences, now: Timestamp) -> Option<Timestamp> {
    let date: jiff::civil::Date =
        preferences.value("date").filter(|day| day.len() == "2030-12-05".len())?.parse().ok()?;
    let midnight = date.to_zoned_datetime(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    let day = Timestamp::from_milliseconds(midnight.as_millisecond());
    (day.plus(Duration::from_hours(24)) > now).then_some(day)
}

/// Writes `Preference-Applied`.
fn confirm(applied: &str, response: &mut Response) {
    let applied = HeaderValue::try_from(applied).expect("values that apply are visible ASCII characters");
    response.headers_mut().insert(PREFERENCE_APPLIED, applied);
}

fn no_response() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::from_u16(NO_RESPONSE).expect("it has three digits");
    response
}

/// The response to a request for a documented error, with the headers about the rate limit that the real error has.
fn error_response(error: &DocumentedError, operation: Operation, api: &Api, caller: &mut Caller) -> Response {
    match (error.code, &api.rate_limits, &mut caller.quota) {
        (Code::MethodNotAllowed, ..) => {
            caller.quota = None;
            return operation.answer_other_method(api);
        }
        (Code::MissingApiKey | Code::InvalidApiKey | Code::OperationRemoved, ..) => caller.quota = None,
        (Code::RateLimited, Some(limits), Some(quota)) => {
            *quota = Quota { is_allowed: false, remaining: 0, seconds: quota.seconds.max(1) };
            return limits.exceeded().answer();
        }
        _ => {}
    }
    let mut response = ApiError::new(error.code, error.message.clone()).answer();
    if error.code == Code::RateLimited {
        // The service has no limit: that of the message, which the document shows.
        response.headers_mut().insert(RATE_LIMIT, HeaderValue::from_static(r#""default";r=0;t=1"#));
        response.headers_mut().insert(RATE_LIMIT_POLICY, HeaderValue::from_static(r#""default";q=600;w=60"#));
    }
    if error.has_retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
