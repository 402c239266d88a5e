//! Failures that clients request, to test how they handle them. On staging only.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use bounded_http::NoResponse;
use bytes::Bytes;
use http_body_util::Full;

use super::admission::rate_limit::{self, Quota, RATE_LIMIT, RATE_LIMIT_POLICY};
use super::call::Call;
use super::documents::deprecation::{self, REMOVED_AT};
use super::documents::documented_errors::DocumentedError;
use super::error::{ApiError, Code};
use super::execute::execute;
use super::input::idempotency::IDEMPOTENT_REPLAYED;
use super::input::query_and_body::{self, RequestBody};
use super::operations::Operation::{CreatePet, GetPet};
use super::prefer::delivery::{Called, Delivery};
use super::prefer::header::{self, PREFER};
use super::prefer::preference::{Broken, Dropped, Preference, RetryAfter};
use super::prefer::preferences::{Failure, Preferences, Simulator, midnight};
use super::response::{Response, content, with_content_type};
use super::unmatched::answer_other_method;
use crate::domain::Timestamp;

/// The status of a connection that was closed without a response, for the log and the metrics. nginx uses it too.
pub const NO_RESPONSE: u16 = 444;

/// The page of a network that asks its users to sign in.
const PAGE: &str = "<!doctype html><title>Sign in</title><h1>Sign in to this network</h1>\n";

/// Calls an operation like [`execute`], and simulates the failures that the request or its key asks for. `None` if there
/// are none to simulate; the operation is not executed then.
///
/// # Errors
///
/// Fails if the request prefers strict handling of preferences and has one that is ignored.
pub async fn call(
    call: &mut Call<'_>,
    body: &mut impl RequestBody,
    quota: Option<Quota>,
) -> Result<Option<Called>, ApiError> {
    let Some(simulator) = &call.api.simulator else { return Ok(None) };
    let (headers, caller) = (&call.head.headers, call.caller);
    let requested = headers.contains_key(PREFER).then(|| Preferences::of(&header::line(headers), call.api.clock.now()));
    let of_key = || caller.key().and_then(|key| key.preferences.as_ref());
    let Some(preferences) = requested.as_ref().or_else(of_key) else { return Ok(None) };
    // Boxed, because it is rarely needed.
    Box::pin(async {
        let Some(simulation) = Simulation::of(call, preferences, simulator).await? else { return Ok(None) };
        Ok(Some(simulation.call(call, body, quota).await))
    })
    .await
}

/// The simulation that a request gets.
struct Simulation {
    failure: Option<Failure>,
    /// The preferences of `Preference-Applied`.
    applied: Vec<Preference>,
}

impl Simulation {
    /// Returns the simulation that an admitted request gets by `preferences`. `None` if it gets none.
    async fn of(call: &Call<'_>, preferences: &Preferences, simulator: &Simulator) -> Result<Option<Self>, ApiError> {
        let (operation, method) = (call.operation, &call.head.method);
        let only = preferences.find(Preference::operation);
        let is_for_another = only.is_some_and(|only| only != operation);
        let reject = |it: &Preference| match it {
            _ if is_for_another || preferences.applies(it, operation, method) => None,
            Preference::Code(_) | Preference::Error(_) | Preference::RetryAfter(_) => {
                Some(format!("{} of {}", it.why_useless(), operation.id()))
            }
            _ => Some(format!("does not apply to {method}")),
        };
        if let Err(invalid) = preferences.check_strictly(reject) {
            query_and_body::check_declared_body(&call.head.headers)?;
            return Err(ApiError::invalid_value("Prefer")(invalid));
        }
        if is_for_another {
            return Ok(None);
        }
        if preferences.given.iter().any(|it| it.portion().is_some()) {
            let is_first = |it: &Preference| matches!(it, Preference::First(_));
            let resets =
                if preferences.given.iter().any(is_first) { Some(call.api.store.resets().await?) } else { None };
            let key = call.caller.key().map(|key| key.grant.id);
            if !preferences.choose(simulator.count((call.account, key, only, resets))) {
                return Ok(None);
            }
        }
        let failure = preferences.failure(operation);
        let has_effect = |it: &Preference| match it {
            Preference::Code(status) => failure.is_some_and(|failure| failure.status() == *status),
            Preference::Date(_) => preferences.day(call.api.clock.now()).is_some(),
            it => it.is_effect() || matches!(it, Preference::RetryAfter(_)),
        };
        let applies = |it: &Preference| preferences.applies(it, operation, method) && has_effect(it);
        let applied: Vec<_> = preferences.given.iter().copied().filter(applies).collect();
        Ok((!applied.is_empty()).then_some(Self { failure, applied }))
    }

    fn find<T>(&self, choose: impl Fn(&Preference) -> Option<T>) -> Option<T> {
        self.applied.iter().find_map(choose)
    }

    /// Calls the operation and simulates the failures.
    ///
    /// A dropped request, an error or a removal replaces the operation. Then the delay passes. Then the response is
    /// dropped, or its body cut or slowed, so every combination of preferences has a meaning.
    async fn call(mut self, call: &mut Call<'_>, body: &mut impl RequestBody, quota: Option<Quota>) -> Called {
        let (api, operation) = (call.api, call.operation);
        let day = self.find(|it| if let Preference::Date(day) = it { Some(midnight(*day)) } else { None });
        let is_past_removal = day.is_some_and(|day| day >= REMOVED_AT);
        let dropped = self.find(|it| if let Preference::Drop(dropped) = it { Some(*dropped) } else { None });
        let (mut response, quota) = match self.failure {
            _ if dropped == Some(Dropped::Request) => (no_response(), quota),
            Some(Failure::Gateway(status)) => (gateway_response(status), None),
            Some(Failure::Error(error)) => error_response(error, call, quota),
            None if operation == GetPet && is_past_removal => (deprecation::removed().answer(), None),
            None => (execute(call, body).await.unwrap_or_else(ApiError::answer), quota),
        };
        rate_limit::write_headers(api.rate_limits.as_ref(), quota, response.headers_mut());
        if let Some(chosen) = self.find(|it| if let Preference::RetryAfter(value) = it { Some(*value) } else { None }) {
            set_retry_after(chosen, api.clock.now(), response.headers_mut());
        }
        if operation == CreatePet && is_past_removal {
            // Removed only from this response, because the one stored under an `Idempotency-Key` is the real one.
            response.headers_mut().remove(LOCATION);
        }
        self.applied
            .retain(|it| if let Preference::Body(broken) = it { break_body(*broken, &mut response) } else { true });
        let delivery = Delivery {
            applied: self.applied.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            status: (dropped != Some(Dropped::Request)).then(|| response.status().as_u16()),
            is_replayed: response.headers().contains_key(IDEMPOTENT_REPLAYED),
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
        if delivery.applied.is_empty() { response.into() } else { Called::simulated(response, delivery) }
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
fn error_response(error: &DocumentedError, call: &Call<'_>, quota: Option<Quota>) -> (Response, Option<Quota>) {
    let quota = match error.code {
        Code::MethodNotAllowed | Code::MissingApiKey | Code::InvalidApiKey | Code::OperationRemoved => None,
        Code::RateLimited => quota.map(|it| Quota { is_allowed: false, remaining: 0, seconds: it.seconds.max(1) }),
        _ => quota,
    };
    let mut response = match (error.code, &call.api.rate_limits) {
        (Code::MethodNotAllowed, _) => answer_other_method(call.operation, call.api),
        (Code::RateLimited, Some(limits)) if quota.is_some() => limits.exceeded().answer(),
        _ => ApiError::new(error.code, error.message.clone()).answer(),
    };
    let headers = response.headers_mut();
    if error.code == Code::RateLimited && quota.is_none() {
        // The service has no limit: that of the message, which the document shows.
        headers.insert(RATE_LIMIT, HeaderValue::from_static(r#""default";r=0;t=1"#));
        headers.insert(RATE_LIMIT_POLICY, HeaderValue::from_static(r#""default";q=600;w=60"#));
    }
    if error.has_retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    (response, quota)
}

/// Changes the `Retry-After` of an error that has one.
fn set_retry_after(chosen: RetryAfter, now: Timestamp, headers: &mut HeaderMap) {
    let Some(seconds) = headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok()) else {
        return;
    };
    let value = match chosen {
        RetryAfter::Seconds(seconds) => seconds.into(),
        RetryAfter::Date => {
            let date = UNIX_EPOCH + Duration::from_millis(now.as_milliseconds().unsigned_abs());
            // Rounded up, because a date has no fractions of a second.
            let date = httpdate::fmt_http_date(date + Duration::from_secs(seconds) + Duration::from_millis(999));
            HeaderValue::try_from(date).expect("a date is visible ASCII characters")
        }
    };
    headers.insert(RETRY_AFTER, value);
}
