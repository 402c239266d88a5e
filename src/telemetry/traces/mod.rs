//! Traces: one span per request, sent to an OpenTelemetry collector (OTLP 1.x over HTTP, as JSON).
//!
//! The sampler decides which requests get a span. At the end of the request
//! the span goes into a bounded queue, from which it is sent in batches. Requests never wait: spans that do not fit are
//! counted and dropped. `docs/tracing.md` is for operators.
//!
//! Not the official crates (`opentelemetry_sdk`, `opentelemetry-otlp` 0.33): they add 20 crates and 34 s of CPU time to a
//! build. This module adds two small ones. Their hyper client has no TLS, so about half of this module would stay: what a
//! span contains, one log line per outage and the count of lost spans.

mod encode;
mod export;
mod sampler;
mod settings;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use tokio::sync::mpsc;

use crate::domain::random;
use crate::telemetry::metrics::Counter;
use crate::telemetry::trace_context::{SpanId, TraceId, TraceParent};
pub use export::Exporting;
pub use sampler::Sampler;
pub use settings::Settings;

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Maximum length of a text from the caller, in bytes, because thousands of spans wait in memory.
const MOST_BYTES: usize = 512;

/// Begins the spans of requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    sampler: Sampler,
    /// Set if the listeners have TLS.
    https: bool,
    finished: mpsc::Sender<Span>,
    lost: Arc<Counter>,
}

/// A request from its head to its response, as exported.
#[derive(Debug)]
pub struct Span {
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    state: Option<String>,
    began: SystemTime,
    took: Duration,
    method: Method,
    https: bool,
    path: String,
    version: Version,
    user_agent: Option<String>,
    /// The path template, if the path is known.
    route: Option<String>,
    end: End,
}

#[derive(Debug)]
enum End {
    Answered {
        status: u16,
        request_id: String,
    },
    /// The client went away before the response.
    Abandoned,
}

/// A request being recorded. Dropping it means that the client went away.
#[derive(Debug)]
pub struct Recording<'a> {
    tracer: &'a Tracer,
    span: Option<Span>,
    began: std::time::Instant,
}

/// Starts the export on this runtime. Fails if the certificate for the endpoint is unusable.
pub fn start(settings: Settings, https: bool) -> Result<(Tracer, Exporting), String> {
    let (finished, queue) = mpsc::channel(settings.queue);
    let lost = Arc::new(Counter::default());
    let tracer = Tracer { sampler: settings.sampler, https, finished, lost: Arc::clone(&lost) };
    Ok((tracer, Exporting::start(settings, queue, lost)?))
}

impl Tracer {
    /// Begins the span of a request. `None` if the sampler rejects it.
    pub fn begin(&self, request: &Parts) -> Option<Recording<'_>> {
        let path = request.uri.path();
        let parent = TraceParent::of(&request.headers);
        let trace = parent.map_or_else(|| TraceId(u128::from_ne_bytes(random())), |parent| parent.trace);
        if !self.sampler.takes(trace, parent.map(|parent| parent.sampled)) {
            return None;
        }
        let header = |name: HeaderName| request.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let span = Span {
            trace,
            id: SpanId(u64::from_ne_bytes(random()).max(1)),
            parent: parent.map(|parent| parent.span),
            // The trace state is kept whole or not at all, because a part of it would be wrong.
            state: parent.and(header(TRACESTATE)).filter(|state| state.len() <= MOST_BYTES).map(Into::into),
            began: SystemTime::now(),
            took: Duration::ZERO,
            method: request.method.clone(),
            https: self.https,
            path: beginning(path),
            version: request.version,
            user_agent: header(USER_AGENT).map(beginning),
            route: None,
            end: End::Abandoned,
        };
        Some(Recording { tracer: self, span: Some(span), began: std::time::Instant::now() })
    }

    fn finish(&self, span: Span) {
        if self.finished.try_send(span).is_err() {
            self.lost.increment();
        }
    }
}

impl Recording<'_> {
    pub fn trace(&self) -> Option<TraceId> {
        self.span.as_ref().map(|span| span.trace)
    }

    /// Names the request by its path template, if the path is known.
    pub fn name(&mut self, route: Option<&str>) {
        if let Some(span) = &mut self.span {
            span.route = route.map(Into::into);
        }
    }

    /// Ends the span with a response.
    pub fn end(mut self, status: StatusCode, request_id: &HeaderValue) {
        if let Some(span) = &mut self.span {
            let request_id = request_id.to_str().unwrap_or_default().to_owned();
            span.end = End::Answered { status: status.as_u16(), request_id };
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            self.tracer.finish(Span { took: self.began.elapsed(), ..span });
        }
    }
}

/// Returns the beginning of a text, up to the maximum length.
fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_BYTES)].to_owned()
}
