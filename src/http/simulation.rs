//! Failures that clients request with `Prefer`, to test how they handle them. On staging only.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::http::header::{LOCATION, RETRY_AFTER, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use super::auth::Caller;
use super::deprecation::{self, REMOVED_AT};
use super::error::{ApiError, Code};
use super::input::{self, RequestBody};
use super::openapi;
use super::operations::Operation::{self, CreatePet, GetPet};
use super::prefer::{PREFER, PREFERENCE_APPLIED, Preferences};
use super::response::Response;
use super::state::Api;
use crate::domain::Timestamp;

/// Range of `delay`, in milliseconds.
const DELAYS: RangeInclusive<i64> = 1..=30_000;

/// The status of a connection that was closed without a response, for the log and the metrics. nginx uses it too.
const NO_RESPONSE: u16 = 444;

/// The kind of simulation that a request got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Simulated {
    #[default]
    Nothing,
    Response,
    /// The connection is closed without a response.
    Drop,
}

/// Simulates failures. Only staging services have one.
#[derive(Debug)]
pub struct Simulator {
    /// The errors of each operation, in the order of [`Operation::ALL`].
    errors: [Vec<DocumentedError>; Operation::COUNT],
}

/// An error of an operation, as its example in the OpenAPI document shows it.
#[derive(Debug)]
struct DocumentedError {
    code: Code,
    message: String,
    has_retry_after: bool,
}

/// The simulation that a request asks for.
#[derive(Debug)]
struct Simulation<'s> {
    error: Option<&'s DocumentedError>,
    delay: Option<Duration>,
    drops_request: bool,
    drops_response: bool,
    date: Option<Timestamp>,
    /// The value of `Preference-Applied`. Empty if no preference applies.
    applied: String,
}

impl Simulator {
    pub fn new() -> Self {
        let document = openapi::source();
        Self { errors: Operation::ALL.map(|operation| documented_errors(&document, operation)) }
    }

    /// Returns the simulator for a request with preferences to an operation of the API. `None` in production, which does not
    /// look for them.
    pub fn of<'a>(api: &'a Api, operation: Operation, headers: &HeaderMap) -> Option<&'a Self> {
        api.simulator.as_ref().filter(|_| headers.contains_key(PREFER) && operation.is_documented())
    }

    /// Calls an operation like [`Operation::execute`], and simulates the failures that the request asks for.
    ///
    /// A dropped request, an error or a removal replaces the operation. Then the delay passes. A dropped response is
    /// discarded last, so every combination of preferences has a meaning.
    pub async fn call(
        &self,
        operation: Operation,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &mut Caller,
    ) -> Result<Response, ApiError> {
        let simulation = self.simulation(operation, &head.headers, api.clock.now());
        // A removed operation responds with 410 even to clients without a key.
        if simulation.applied.is_empty() || operation.is_removed(api.clock.recent()) {
            return operation.execute(api, head, body, caller).await;
        }
        caller.authenticate(api, &head.headers).await?;
        caller.simulated = Simulated::Response;
        let is_past_removal = simulation.date.is_some_and(|day| day >= REMOVED_AT);
        let mut response = if simulation.drops_request {
            no_response()
        } else if let Some(error) = simulation.error {
            error.answer(operation, api)
        } else if operation == GetPet && is_past_removal {
            deprecation::removed().answer()
        } else {
            operation.execute(api, head, body, caller).await.unwrap_or_else(ApiError::answer)
        };
        if operation == CreatePet && is_past_removal {
            // Removed only from this response, because the one stored under an `Idempotency-Key` is the real one.
            response.headers_mut().remove(LOCATION);
        }
        if let Some(delay) = simulation.delay {
            tokio::time::sleep(delay).await;
        }
        if simulation.drops_request || simulation.drops_response {
            caller.simulated = Simulated::Drop;
            return Ok(no_response());
        }
        confirm(&simulation.applied, &mut response);
        Ok(response)
    }

    /// Returns the preferences of a request that apply to `operation`. Others are ignored.
    fn simulation(&self, operation: Operation, headers: &HeaderMap, now: Timestamp) -> Simulation<'_> {
        let preferences = Preferences::of(headers);
        let value = |name| preferences.value(name);
        let errors = || self.errors[operation as usize].iter();
        let with_code = value("error").and_then(|code| errors().find(|error| error.code.as_str() == code));
        let with_status =
            value("code").and_then(|status| errors().find(|error| error.code.status().as_str() == status));
        let error = with_code.or(with_status);
        let delay = value("delay").and_then(input::integer).filter(|delay| DELAYS.contains(delay));
        let (drops_request, drops_response) = (value("drop") == Some("request"), value("drop") == Some("response"));
        let date = date(&preferences, now);
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
        Simulation { error, delay, drops_request, drops_response, date, applied: applied.join(", ") }
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
    let preferences = api.simulator.as_ref().map(|_| Preferences::of(headers));
    let date = preferences.as_ref().and_then(|preferences| date(preferences, now));
    let mut response = respond(date.unwrap_or(now));
    if let (Some(_), Some(day)) = (date, preferences.as_ref().and_then(|preferences| preferences.value("date"))) {
        caller.simulated = Simulated::Response;
        confirm(&format!("date={day}"), &mut response);
    }
    if api.simulator.is_some() {
        // A cache must not return the document of another day.
        response.headers_mut().append(VARY, HeaderValue::from(PREFER));
    }
    response
}

/// Returns the preferred day. `None` for days before today, because a removed operation stays removed.
fn date(preferences: &Preferences, now: Timestamp) -> Option<Timestamp> {
    let date: jiff::civil::Date =
        preferences.value("date").filter(|day| day.len() == "2030-12-05".len())?.parse().ok()?;
    let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
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

impl DocumentedError {
    fn answer(&self, operation: Operation, api: &Api) -> Response {
        if self.code == Code::MethodNotAllowed {
            return operation.answer_other_method(api);
        }
        let mut response = ApiError::new(self.code, self.message.clone()).answer();
        if self.has_retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns the errors of an operation in the order of the error table, including the error of its removal.
fn documented_errors(document: &Value, operation: Operation) -> Vec<DocumentedError> {
    let method = operation.method().as_str().to_ascii_lowercase();
    let responses = &document["paths"][operation.api_path()][method]["responses"];
    let error = |code: Code| {
        let response = target(document, &responses[code.status().as_str()]);
        let example = target(document, &response["content"]["application/json"]["examples"][code.as_str()]);
        let message = match example["value"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None if operation == GetPet && code == Code::OperationRemoved => {
                deprecation::removed().message().to_owned()
            }
            None => return None,
        };
        let has_retry_after = target(document, &response["headers"]["Retry-After"])["required"] == true;
        Some(DocumentedError { code, message, has_retry_after })
    };
    Code::ALL.into_iter().filter_map(error).collect()
}

/// Returns the target of a reference. Returns any other value unchanged.
fn target<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    let reference = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.map_or(value, |pointer| document.pointer(pointer).expect("references in docs/openapi.json resolve"))
}
