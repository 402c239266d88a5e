//! The telemetry of a request: its metrics, its trace and its log line.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use crate::api::caller::Caller;
use crate::api::client::client_address;
use crate::api::counters::requests::{RequestInProgress, Route};
use crate::api::error::Cause;
use crate::api::operations::{Listener, Operation, Target};
use crate::api::state::Api;
use crate::redaction::without_keys;
use crate::telemetry::trace_context::{TraceId, TraceParent};
use crate::telemetry::traces::{self, Span};

/// Maximum length of a logged user agent, in bytes. Browsers send about 120 characters.
const USER_AGENT_LENGTH: usize = 256;

/// A request from its head to its response. Dropped before [`Self::end`], it was abandoned by its client.
pub struct RequestTelemetry<'s> {
    in_progress: RequestInProgress<'s>,
    /// An operation at the request's path, with any method.
    operation: Option<Operation>,
    /// Set before a simulated response is sent.
    pub is_simulated: bool,
    span: Option<Span>,
    /// Boxed, because most requests have none, and this value is moved.
    log_entry: Option<Box<LogEntry>>,
}

/// The parts of a request's log line that are known before its response.
#[derive(Debug)]
struct LogEntry {
    method: Method,
    path: String,
    client_address: IpAddr,
    /// `None` if the request has no `User-Agent`.
    user_agent: Option<String>,
    /// The trace in which the request is recorded: its caller's, or one that begins with it.
    trace_id: Option<TraceId>,
}

impl<'s> RequestTelemetry<'s> {
    pub fn begin(api: &'s Api, listener: Listener, target: Target, head: &Parts, peer: IpAddr) -> Self {
        let operation = target.at_path();
        let is_health_check = operation.is_some_and(Operation::is_health_check);
        let is_logged = !is_health_check && (api.logs_requests || tracing::enabled!(tracing::Level::DEBUG));
        // Only the operator's tools use the operations listener.
        let is_traced = !is_health_check && listener != Listener::Ops;
        let in_progress = api.traffic.begin(&head.method);
        let begin_span = || traces::begin(head, in_progress.method(), api.addresses.scheme.as_str());
        let (trace, span) = is_traced.then(begin_span).flatten().unzip();
        let log_entry = is_logged.then(|| {
            let start = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(USER_AGENT_LENGTH)]).into_owned();
            Box::new(LogEntry {
                method: head.method.clone(),
                path: logged_path(&head.uri),
                // IPv4 clients of a listener for IPv6 have mapped addresses.
                client_address: client_address(peer, &head.headers, &api.trusted_proxies).to_canonical(),
                user_agent: head.headers.get(USER_AGENT).map(|agent| start(agent.as_bytes())),
                trace_id: trace.or_else(|| TraceParent::of(&head.headers).map(|parent| parent.trace)),
            })
        });
        Self { in_progress, operation, is_simulated: false, span, log_entry }
    }

    /// Runs the part of the request whose writes have spans below the request's.
    pub fn within<F: Future>(&self, call: F) -> impl Future<Output = F::Output> + use<F> {
        traces::within(self.span.as_ref(), call)
    }

    /// Records that the client of an operation went away before the response. Returns the time since the head arrived.
    pub fn abandon(&mut self, api: &Api, caller: &Caller<'_>) -> Duration {
        let (route, took) = (self.route(api, None), self.in_progress.began.elapsed());
        // nginx uses this status too.
        let status = StatusCode::from_u16(499).expect("it has three digits");
        self.write(route, caller, status, took);
        self.end_span(route.known_template(), None);
        took
    }

    /// Records the response. Returns the request's duration.
    pub fn end<B>(&mut self, api: &Api, caller: &Caller<'_>, response: &mut Response<B>) -> Duration {
        let page = response.extensions_mut().remove::<MatchedPath>().map(|path| api.traffic.page(path.as_str()));
        let route = self.route(api, page.as_deref());
        let id = &caller.peer.request_id;
        self.end_span(route.known_template(), Some((response.status(), id)));
        let took = self.in_progress.end(route, response.status());
        self.write(route, caller, response.status(), took);
        if let Some(cause) = response.extensions_mut().remove() {
            log_cause(api, response.status(), &cause, id);
        }
        took
    }

    fn route<'r>(&self, api: &'r Api, page: Option<&'r Route>) -> &'r Route {
        let operation = self.operation.map(|operation| api.traffic.operation(operation, self.is_simulated));
        operation.or(page).unwrap_or(&api.traffic.unmatched)
    }

    fn end_span(&mut self, route: Option<&str>, response: Option<(StatusCode, &HeaderValue)>) {
        if let Some(span) = self.span.take() {
            traces::end(&span, self.in_progress.method(), route, response);
        }
    }

    /// Writes the log entry.
    fn write(&mut self, route: &Route, caller: &Caller<'_>, status: StatusCode, took: Duration) {
        let Some(entry) = self.log_entry.take() else { return };
        let LogEntry { method, path, client_address, user_agent, trace_id } = *entry;
        tracing::info!(
            request_id = caller.peer.request_id.to_str().unwrap_or_default(),
            trace_id = trace_id.map(tracing::field::display),
            account = caller.account().map(|account| account.0),
            key = caller.key_owner().map(|owner| owner.key.0),
            %method,
            route = &*route.template,
            path,
            %client_address,
            user_agent,
            status = status.as_u16(),
            simulated = route.is_simulated.then_some(true),
            seconds = took.as_secs_f64(),
            "request"
        );
    }
}

impl Drop for RequestTelemetry<'_> {
    /// Marks the span of a request for a page as abandoned, unless it has ended.
    fn drop(&mut self) {
        self.end_span(None, None);
    }
}

/// Returns the path without the query, which is private. A path that contains a key is decoded, so that the log hides the key
/// even if it was percent-encoded.
fn logged_path(uri: &Uri) -> String {
    let decoded = percent_decode_str(uri.path()).decode_utf8_lossy();
    let shown = if matches!(without_keys(decoded.as_bytes()), Cow::Owned(_)) { &decoded } else { uri.path() };
    shown.to_owned()
}

/// Logs the cause of a 5xx error.
pub fn log_cause(api: &Api, status: StatusCode, Cause(cause): &Cause, id: &HeaderValue) {
    let request_id = id.to_str().unwrap_or_default();
    match status {
        // Sampled, because overload and outages reject many requests at once.
        StatusCode::SERVICE_UNAVAILABLE if api.traffic.refusals.is_first(cause) => {
            tracing::warn!(request_id, status = status.as_u16(), cause, "request refused");
        }
        StatusCode::SERVICE_UNAVAILABLE => {}
        _ => tracing::error!(request_id, status = status.as_u16(), cause, "request failed"),
    }
}
