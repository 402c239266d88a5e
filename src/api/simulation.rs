//! Failures that clients request, to test how they handle them. On staging only.

use std::time::Duration;

use axum::http::header::{LOCATION, RETRY_AFTER, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::admission::rate_limit::{Quota, RATE_LIMIT, RATE_LIMIT_POLICY};
use super::caller::Caller;
use super::documents::deprecation::{self, REMOVED_AT};
use super::documents::documented_errors::DocumentedError;
use super::error::{ApiError, Code};
use super::input::query_and_body::{self, RequestBody};
use super::operations::Operation::{self, CreatePet, GetPet};
use super::prefer::delivery::Simulated;
use super::prefer::header::{PREFER, PREFERENCE_APPLIED, Prefer};
use super::prefer::preferences::{Dropped, OF_PROXIES, Preference, Preferences};
use super::prefer::request_numbers::Simulator;
use super::response::{Response, with_content_type};
use super::state::Api;
use crate::domain::{Invalid, Timestamp};

/// The status of a connection that was closed without a response, for the log and the metrics. nginx uses it too.
const NO_RESPONSE: u16 = 444;

/// The simulation that a request gets.
#[derive(Debug, Default)]
pub struct Simulation {
    failure: Option<Failure>,
    delay: Option<Duration>,
    dropped: Option<Dropped>,
    pace: Option<u16>,
    day: Option<Timestamp>,
    /// The value of `Preference-Applied`.
    applied: String,
}

/// A response instead of that of the operation.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Error(&'static DocumentedError),
    /// A proxy's.
    Gateway(StatusCode),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Error(error) => error.code.status(),
            Self::Gateway(status) => *status,
        }
    }
}

impl Simulation {
    /// Returns the simulation that a request gets by its own preferences or those of its key. `None` if it gets none.
    ///
    /// # Errors
    ///
    /// Fails if the key, the rate limit or the role rejects the request, or the request prefers strict handling
    /// of preferences and has one that is ignored.
    pub async fn of(
        simulator: &Simulator,
        operation: Operation,
        api: &Api,
        head: &Parts,
        caller: &mut Caller<'_>,
    ) -> Result<Option<Self>, ApiError> {
        // A removed operation responds with 410 even to clients without a key.
        if !operation.is_documented() || operation.is_removed(api.clock.coarse_now()) {
            return Ok(None);
        }
        let headers = &head.headers;
        let account = caller.admit(api, operation, headers).await?;
        let now = api.clock.now();
        let requested = headers.contains_key(PREFER).then(|| Preferences::of(&Prefer::of(headers), now));
        let Some(preferences) = requested.as_ref().or(caller.preferences.as_deref()) else { return Ok(None) };
        let only = preferences.find(Preference::operation);
        let is_for_another = only.is_some_and(|only| only != operation);
        let reject = |it: &Preference| match it {
            _ if is_for_another || it.applies_to(operation, &head.method) => None,
            Preference::Code(_) | Preference::Error(_) => Some(format!("is no documented error of {}", operation.id())),
            _ => Some(format!("does not apply to {}", head.method)),
        };
        if let Err(invalid) = check_strictly(preferences, reject) {
            query_and_body::check_declared_body(headers)?;
            return Err(ApiError::invalid_value("Prefer", &invalid));
        }
        let number = || simulator.count((account, caller.key, only));
        let is_chosen = !is_for_another && (!preferences.is_partial() || preferences.choose(number()));
        Ok(is_chosen.then(|| Self::by(preferences, operation, &head.method, now)).filter(|it| !it.applied.is_empty()))
    }

    /// The simulation by the preferences that apply to the operation.
    fn by(preferences: &Preferences, operation: Operation, method: &Method, now: Timestamp) -> Self {
        let with_code = |it: &Preference| match it {
            Preference::Error(code) => operation.error_with_code(*code).map(Failure::Error),
            _ => None,
        };
        let with_status = |it: &Preference| match it {
            Preference::Code(status) if OF_PROXIES.contains(status) => Some(Failure::Gateway(*status)),
            Preference::Code(status) => operation.error_with_status(*status).map(Failure::Error),
            _ => None,
        };
        let failure = preferences.find(with_code).or_else(|| preferences.find(with_status));
        let mut simulation = Self { failure, ..Self::default() };
        for preference in &preferences.given {
            match preference {
                _ if !preference.applies_to(operation, method) => continue,
                Preference::Code(status) if failure.is_some_and(|failure| failure.status() == *status) => {}
                Preference::Error(_) => {}
                Preference::Delay(milliseconds) => simulation.delay = Some(Duration::from_millis(*milliseconds)),
                Preference::Drop(dropped) => simulation.dropped = Some(*dropped),
                Preference::Pace(pace) => simulation.pace = u16::try_from(*pace).ok(),
                Preference::Date(day) if preferences.day(now).is_some() => simulation.day = preferences.day(now),
                _ => continue,
            }
            let separator = if simulation.applied.is_empty() { "" } else { ", " };
            simulation.applied.push_str(&format!("{separator}{preference}"));
        }
        simulation
    }

    /// Calls an operation like [`Operation::execute`], and simulates the failures.
    ///
    /// A dropped request, an error or a removal replaces the operation. Then the delay passes. Then the response is
    /// dropped, or its body cut or slowed, so every combination of preferences has a meaning.
    pub async fn call(
        self,
        operation: Operation,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &mut Caller<'_>,
    ) -> Response {
        let is_past_removal = self.day.is_some_and(|day| day >= REMOVED_AT);
        let mut response = match self.failure {
            _ if self.dropped == Some(Dropped::Request) => no_response(),
            Some(Failure::Gateway(status)) => gateway_response(status),
            Some(Failure::Error(error)) => error_response(error, operation, api, caller),
            None if operation == GetPet && is_past_removal => {
                caller.quota = None;
                deprecation::removed().answer()
            }
            None => operation.execute(api, head, body, caller).await.unwrap_or_else(ApiError::answer),
        };
        if operation == CreatePet && is_past_removal {
            // Removed only from this response, because the one stored under an `Idempotency-Key` is the real one.
            response.headers_mut().remove(LOCATION);
        }
        let simulated = caller.simulated.insert(Box::new(Simulated {
            applied: self.applied,
            is_of_proxy: matches!(self.failure, Some(Failure::Gateway(_))),
            is_dropped: matches!(self.dropped, Some(Dropped::Request | Dropped::Response)),
            is_cut: self.dropped == Some(Dropped::Body),
            pace: self.pace,
            recorded: None,
        }));
        if let Some(delay) = self.delay {
            tokio::time::sleep(delay).await;
        }
        if simulated.is_dropped {
            response = no_response();
        }
        confirm(&simulated.applied, &mut response);
        response
    }
}

/// Rejects preferences that would be ignored, if the request asks for that (RFC 7240, section 4.4). `reject` returns the
/// reason why one does not apply.
fn check_strictly(preferences: &Preferences, reject: impl Fn(&Preference) -> Option<String>) -> Result<(), Invalid> {
    if !preferences.is_strict() {
        return Ok(());
    }
    if let Some(ignored) = &preferences.ignored {
        return Err(ignored.clone());
    }
    match preferences.given.iter().find_map(|it| Some((it, reject(it)?))) {
        Some((useless, why)) => Err(Invalid(format!("has {useless}, which {why}"))),
        None => Ok(()),
    }
}

/// Responds to a request for the OpenAPI document, which needs no API key, as of the day that it prefers. Without a
/// preference, as of now.
///
/// # Errors
///
/// Fails if the request prefers strict handling of preferences and has one that is ignored.
pub fn respond_at_date(
    api: &Api,
    headers: &HeaderMap,
    caller: &mut Caller<'_>,
    respond: impl FnOnce(Timestamp) -> Response,
) -> Result<Response, ApiError> {
    let now = api.clock.now();
    if !api.is_simulating() {
        return Ok(respond(now));
    }
    let preferences = Preferences::of(&Prefer::of(headers), now);
    let is_for_operation = preferences.find(Preference::operation).is_some();
    let is_date = |it: &Preference| matches!(it, Preference::Date(_));
    let applies = |it: &Preference| is_for_operation || is_date(it) || matches!(it, Preference::Strict(_));
    let reject = |it: &Preference| (!applies(it)).then(|| "does not apply to the OpenAPI document".to_owned());
    check_strictly(&preferences, reject).map_err(|invalid| ApiError::invalid_value("Prefer", &invalid))?;
    let date = preferences.given.iter().find(|it| is_date(it) && !is_for_operation);
    let mut response = respond(date.and_then(|_| preferences.day(now)).unwrap_or(now));
    if let Some(date) = date {
        let simulated = caller.simulated.insert(Box::default());
        simulated.applied = date.to_string();
        confirm(&simulated.applied, &mut response);
    }
    // A cache must not return the document of another day.
    response.headers_mut().append(VARY, HeaderValue::from(PREFER));
    Ok(response)
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

fn gateway_response(status: StatusCode) -> Response {
    with_content_type("text/html", status, format!("<!doctype html><title>{status}</title><h1>{status}</h1>\n"))
}

/// The response to a request for a documented error, with the headers about the rate limit that the real error has.
fn error_response(error: &DocumentedError, operation: Operation, api: &Api, caller: &mut Caller<'_>) -> Response {
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
