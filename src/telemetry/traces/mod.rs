//! Traces: a span for each request, sent to an OpenTelemetry collector (OTLP 1.x over HTTP, as JSON).
//!
//! Only in a build with the feature `otlp`. A span is made where the sampler says so, put into a bounded queue when the
//! request is answered, and sent from there in batches. Nothing of this holds a request up: what has no room is counted and
//! dropped. `docs/tracing.md` is for who runs it.

mod client;
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

use crate::telemetry::metrics::Counter;
use crate::telemetry::trace_context::{SpanId, TraceId, TraceParent};
pub use export::Exporting;
pub use sampler::Sampler;
pub use settings::{Resource, Settings};

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Of what a caller chooses the length of, a span takes this many bytes: it waits in memory with thousands of others.
const MOST_BYTES: usize = 512;

/// Begins the spans of requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    sampler: Sampler,
    /// Whether the listeners have TLS.
    https: bool,
    finished: mpsc::Sender<Span>,
    lost: Arc<Counter>,
}

/// A request from its head to its answer, as it is exported.
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
    end: End,
}

/// How a request ended.
#[derive(Debug)]
enum End {
    Answered {
        route: Option<String>,
        status: u16,
        request_id: String,
    },
    /// Its client went away before the answer.
    Abandoned,
}

/// A request that is being answered, and is recorded. Where it is dropped, nobody waited for the answer.
#[derive(Debug)]
pub struct Recording<'a> {
    tracer: &'a Tracer,
    span: Option<Span>,
    began: std::time::Instant,
}

/// Starts what takes the spans away, on this runtime. Fails where the certificate for the endpoint can't be used.
pub fn start(settings: Settings, resource: &Resource<'_>, https: bool) -> Result<(Tracer, Exporting), String> {
    let (finished, queue) = mpsc::channel(settings.queue);
    let lost = Arc::new(Counter::default());
    let tracer = Tracer { sampler: settings.sampler, https, finished, lost: Arc::clone(&lost) };
    Ok((tracer, Exporting::start(settings, resource, queue, lost)?))
}

impl Tracer {
    /// Begins the span of a request. `None` if the sampler rejects it.
    pub fn begin(&self, request: &Parts) -> Option<Recording<'_>> {
        let path = request.uri.path();
        let parent = TraceParent::of(&request.headers);
        let trace = parent.map_or_else(|| TraceId(random(u128::from_ne_bytes)), |parent| parent.trace);
        if !self.sampler.takes(trace, parent.map(|parent| parent.sampled)) {
            return None;
        }
        let header = |name: HeaderName| request.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let span = Span {
            trace,
            id: SpanId(random(u64::from_ne_bytes).max(1)),
            parent: parent.map(|parent| parent.span),
            // Others' notes on a trace go along with it, or not at all: half of them would be wrong.
            state: parent.and(header(TRACESTATE)).filter(|state| state.len() <= MOST_BYTES).map(Into::into),
            began: SystemTime::now(),
            took: Duration::ZERO,
            method: request.method.clone(),
            https: self.https,
            path: beginning(path),
            version: request.version,
            user_agent: header(USER_AGENT).map(beginning),
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

    /// It was answered: by what `route` of the table says, where it is one.
    pub fn end(mut self, route: Option<&str>, status: StatusCode, request_id: &HeaderValue) {
        if let Some(span) = &mut self.span {
            let request_id = request_id.to_str().unwrap_or_default().to_owned();
            span.end = End::Answered { route: route.map(Into::into), status: status.as_u16(), request_id };
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

/// As much of a text as a span takes.
fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_BYTES)].to_owned()
}

fn random<const BYTES: usize, T>(number: impl Fn([u8; BYTES]) -> T) -> T {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).expect("the operating system has random bytes");
    number(random)
}
