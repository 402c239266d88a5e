//! Failures that clients request, to test how they handle them. On staging only.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use bounded_http::NoResponse;
use bytes::Bytes;
use http_body_util::Full;

use super::admission::rate_limit::{self, Quota, RATE_LIMIT, RATE_LIMIT_POLICY};
use super::caller::Caller;
use super::documents::deprecation::{self, REMOVED_AT};
use super::documents::documented_errors::DocumentedError;
use super::error::{ApiError, Code};
use super::execute::execute;
use super::input::query_and_body::{self, RequestBody};
use super::operations::Operation::{self, CreatePet, GetPet};
use super::prefer::delivery::{Called, Delivery};
use super::prefer::header::{PREFER, Prefer, confirm};
use super::prefer::preference::{Broken, Dropped, Preference, RetryAfter};
use super::prefer::preferences::{Failure, Preferences, Simulator, midnight};
use super::response::{Response, content, with_content_type};
use super::state::Api;
use super::unmatched::answer_other_method;
use crate::domain::Timestamp;

/// The status of a connection that was closed without a response, for the log and the metrics. nginx uses it too.
const NO_RESPONSE: u16 = 444;

/// The page of a network that asks its users to sign in.
const PAGE: &str = "<!doctype html><title>Sign in</title><h1>Sign in to this network</h1>\n";

/// The simulation that a request gets.
#[derive(Debug)]
pub struct Simulation {
    failure: Option<Failure>,
    /// The preferences of `Preference-Applied`.
    applied: Vec<Preference>,
}

impl Simulation {
    /// Returns the simulation that an admitted request gets by its own preferences or those of its key. `None` if it gets
    /// none.
    ///
    /// # Errors
    ///
    /// Fails if the request prefers strict handling of preferences and has one that is ignored.
    pub async fn of(
        operation: Operation,
        api: &Api,
        head: &Parts,
        caller: &Caller<'_>,
    ) -> Result<Option<Box<Self>>, ApiError> {
        let Some(simulator) = &api.simulator else { return Ok(None) };
        let headers = &head.headers;
        let requested = headers.contains_key(PREFER).then(|| Preferences::of(&Prefer::of(headers), api.clock.now()));
        let of_key = || caller.key().and_then(|key| key.preferences.as_deref());
        let Some(preferences) = requested.as_ref().or_else(of_key) else { return Ok(None) };
        // Boxed, because it is rarely needed.
        Box::pin(Self::by_preferences(preferences, simulator, operation, api, head, caller)).await
    }

    async fn by_preferences(
        preferences: &Preferences,
        simulator: &Simulator,
        operation: Operation,
        api: &Api,
        head: &Parts,
        caller: &Caller<'_>,
    ) -> Result<Option<Box<Self>>, ApiError> {
        let only = preferences.find(Preference::operation);
        let is_for_another = only.is_some_and(|only| only != operation);
        let reject = |it: &Preference| match it {
            _ if is_for_another || preferences.applies(it, operation, &head.method) => None,
            Preference::Code(_) | Preference::Error(_) | Preference::RetryAfter(_) => {
                Some(format!("{} of {}", it.why_useless(), operation.id()))
            }
            _ => Some(format!("does not apply to {}", head.method)),
        };
        if let Err(invalid) = preferences.check_strictly(reject) {
            query_and_body::check_declared_body(&head.headers)?;
            return Err(ApiError::invalid_value("Prefer", &invalid));
        }
        if is_for_another {
            return Ok(None);
        }
        if preferences.is_partial() {
            let account = caller.account().expect("the caller is admitted");
            let is_first = |it: &Preference| matches!(it, Preference::First(_));
            let resets = if preferences.given.iter().any(is_first) { Some(api.store.resets().await?) } else { None };
            let number = simulator.count((account, caller.key().map(|key| key.grant.id), only, resets));
            if !preferences.choose(number) {
                return Ok(None);
            }
        }
        let simulation = Self::by(preferences, operation, &head.method, api.clock.now());
        Ok((!simulation.applied.is_empty()).then(|| Box::new(simulation)))
    }

    /// The simulation by the preferences that apply to the operation.
    fn by(preferences: &Preferences, operation: Operation, method: &Method, now: Timestamp) -> Self {
        let failure = preferences.failure(operation);
        let has_effect = |it: &Preference| match it {
            Preference::Code(status) => failure.is_some_and(|failure| failure.status() == *status),
            Preference::Date(_) => preferences.day(now).is_some(),
            it => it.is_effect() || matches!(it, Preference::RetryAfter(_)),
        };
        let applied =
            preferences.given.iter().filter(|it| preferences.applies(it, operation, method) && has_effect(it));
        Self { failure, applied: applied.copied().collect() }
    }

    fn find<T>(&self, choose: impl Fn(&Preference) -> Option<T>) -> Option<T> {
        self.applied.iter().find_map(choose)
    }

    /// Calls an operation like [`execute`], and simulates the failures.
    ///
    /// A dropped request, an error or a removal replaces the operation. Then the delay passes. Then the response is
    /// dropped, or its body cut or slowed, so every combination of preferences has a meaning.
    pub async fn call(
        mut self,
        operation: Operation,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &Caller<'_>,
        quota: Option<Quota>,
    ) -> Called {
        let day = self.find(|it| if let Preference::Date(day) = it { Some(midnight(*day)) } else { None });
        let is_past_removal = day.is_some_and(|day| day >= REMOVED_AT);
        let dropped = self.find(|it| if let Preference::Drop(dropped) = it { Some(*dropped) } else { None });
        let retry_after = self.find(|it| if let Preference::RetryAfter(value) = it { Some(*value) } else { None });
        let (mut response, quota) = match self.failure {
            _ if dropped == Some(Dropped::Request) => (no_response(), quota),
            Some(Failure::Gateway(status)) => (gateway_response(status), None),
            Some(Failure::Error(error)) => error_response(error, operation, api, quota, retry_after),
            None if operation == GetPet && is_past_removal => (deprecation::removed().answer(), None),
            None => {
                let response = execute(operation, api, head, body, caller).await;
                (response.unwrap_or_else(ApiError::answer), quota)
            }
        };
        if operation == CreatePet && is_past_removal {
            // Removed only from this response, because the one stored under an `Idempotency-Key` is the real one.
            response.headers_mut().remove(LOCATION);
        }
        self.applied
            .retain(|it| if let Preference::Body(broken) = it { break_body(*broken, &mut response) } else { true });
        let delivery = Delivery {
            applied: self.applied.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            is_of_proxy: matches!(self.failure, Some(Failure::Gateway(_))),
            delay: self.find(|it| if let Preference::Delay(delay) = it { Some(*delay) } else { None }),
            dropped: match dropped {
                Some(Dropped::Request | Dropped::Response) => Some(NoResponse::Close),
                Some(Dropped::Reset) => Some(NoResponse::Reset),
                Some(Dropped::Body) | None => None,
            },
            is_cut: dropped == Some(Dropped::Body),
            pace: self.find(|it| if let Preference::Pace(pace) = it { Some(*pace) } else { None }),
        };
        if delivery.dropped.is_some() {
            response = no_response();
        }
        let is_simulated = !delivery.applied.is_empty();
        if is_simulated {
            confirm(&delivery.applied, response.headers_mut());
        }
        rate_limit::write_headers(api.rate_limits.as_ref(), quota, response.headers_mut());
        Called { response, delivery: is_simulated.then(|| Box::new(delivery)) }
    }
}

/// Breaks the body of a success. Returns false, and changes nothing, if it has nothing to break: an error, or an empty list.
fn break_body(broken: Broken, response: &mut Response) -> bool {
    if !response.status().is_success() {
        return false;
    }
    let whole = content(response.body());
    // Quotes within values are escaped, so these texts are those of fields.
    let text = String::from_utf8_lossy(&whole);
    let changed = match broken {
        Broken::Cut => whole.slice(..whole.len() / 2),
        Broken::Html => Bytes::from_static(PAGE.as_bytes()),
        Broken::UnknownField => text.replace(r#"{"id":"#, r#"{"unknownField":true,"id":"#).into(),
        Broken::UnknownValue => text.replace(r#""status":""#, r#""status":"un"#).into(),
    };
    if changed == whole {
        return false;
    }
    if broken == Broken::Html {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    }
    *response.body_mut() = Full::new(changed);
    true
}

fn no_response() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::from_u16(NO_RESPONSE).expect("it has three digits");
    response
}

fn gateway_response(status: StatusCode) -> Response {
    with_content_type("text/html", status, format!("<!doctype html><title>{status}</title><h1>{status}</h1>\n"))
}

/// The response to a request for a documented error, and the quota that the real error shows.
fn error_response(
    error: &DocumentedError,
    operation: Operation,
    api: &Api,
    quota: Option<Quota>,
    retry_after: Option<RetryAfter>,
) -> (Response, Option<Quota>) {
    let (mut response, quota) = documented_response(error, operation, api, quota);
    if let (Some(chosen), Some(seconds)) = (retry_after, response.headers().get(RETRY_AFTER)) {
        let seconds = seconds.to_str().ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
        let value = match chosen {
            RetryAfter::Seconds(seconds) => seconds.into(),
            RetryAfter::Date => {
                let date = UNIX_EPOCH + Duration::from_millis(api.clock.now().as_milliseconds().unsigned_abs());
                // Rounded up, because a date has no fractions of a second.
                let date = httpdate::fmt_http_date(date + Duration::from_secs(seconds) + Duration::from_millis(999));
                HeaderValue::try_from(date).expect("a date is visible ASCII characters")
            }
        };
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    (response, quota)
}

fn documented_response(
    error: &DocumentedError,
    operation: Operation,
    api: &Api,
    quota: Option<Quota>,
) -> (Response, Option<Quota>) {
    let quota = match (error.code, &api.rate_limits, quota) {
        (Code::MethodNotAllowed, ..) => return (answer_other_method(operation, api), None),
        (Code::MissingApiKey | Code::InvalidApiKey | Code::OperationRemoved, ..) => None,
        (Code::RateLimited, Some(limits), Some(quota)) => {
            let exhausted = Quota { is_allowed: false, remaining: 0, seconds: quota.seconds.max(1) };
            return (limits.exceeded().answer(), Some(exhausted));
        }
        _ => quota,
    };
    let mut response = ApiError::new(error.code, error.message.clone()).answer();
    if error.code == Code::RateLimited {
        // The service has no limit: that of the message, which the document shows.
        response.headers_mut().insert(RATE_LIMIT, HeaderValue::from_static(r#""default";r=0;t=1"#));
        response.headers_mut().insert(RATE_LIMIT_POLICY, HeaderValue::from_static(r#""default";q=600;w=60"#));
    }
    if error.has_retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    (response, quota)
}
