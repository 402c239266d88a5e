//! The log line of a request.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};

use super::trace_context::{TraceId, TraceParent};
use crate::domain::AccountId;

/// A log entry about a request, before its response.
#[derive(Debug)]
pub struct RequestLogEntry {
    method: Method,
    path: String,
    trace_id: Option<TraceId>,
}

impl RequestLogEntry {
    pub fn of(request: &Parts) -> Self {
        Self {
            method: request.method.clone(),
            // Without the query, which is private.
            path: request.uri.path().to_owned(),
            trace_id: TraceParent::of(&request.headers).map(|parent| parent.trace),
        }
    }

    /// The request is recorded in this trace: its caller's, or one that begins with it.
    pub fn is_in(&mut self, trace: TraceId) {
        self.trace_id = Some(trace);
    }

    pub fn write(self, id: &HeaderValue, account: Option<AccountId>, route: &str, status: StatusCode, took: Duration) {
        let Self { method, path, trace_id } = self;
        tracing::info!(
            request_id = id.to_str().unwrap_or_default(),
            trace_id = trace_id.map(tracing::field::display),
            account = account.map(|account| account.0),
            %method,
            route,
            path,
            status = status.as_u16(),
            seconds = took.as_secs_f64(),
            "request"
        );
    }
}
