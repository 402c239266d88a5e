//! Stands in for the exporter in a build without it. No span can exist, so the compiler removes the code that uses one.

use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::telemetry::trace_context::TraceId;

pub type Span = std::convert::Infallible;

pub fn start(_collector: &str, _deployment: &str) -> Result<(), &'static str> {
    Err("this build has no exporter: build it with --features otlp")
}

pub fn begin(_head: &Parts, _method: Option<&'static str>, _scheme: &str) -> Option<(TraceId, Span)> {
    None
}

pub fn end(_: &Span, _method: Option<&str>, _route: Option<&str>, _response: Option<(StatusCode, &HeaderValue)>) {}

pub async fn flush() {}

pub fn within<F: Future>(_request: Option<&Span>, call: F) -> F {
    call
}

pub fn write_spans(_queued: Instant, _began: Instant) {}
