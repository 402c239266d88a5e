//! Spans, exported as OTLP over HTTP in Protocol Buffers. OpenTelemetry's crates read most settings themselves.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::future::Either;
pub use opentelemetry::Context as Span;
use opentelemetry::context::{Context, FutureExt};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, Tracer, TracerProvider,
};
use opentelemetry::{Array, KeyValue, Value};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::resource::{EnvResourceDetector, Resource};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::net::http_client::Client;
use crate::net::tls;
use crate::redaction::without_keys;
use crate::telemetry::trace_context::{TraceId, TraceParent};

/// Maximum length of a text from the client, in bytes, because thousands of spans wait in memory.
const MAX_TEXT: usize = 512;

/// The export of this process. Empty if there is none.
static EXPORT: OnceLock<(SdkTracerProvider, SdkTracer)> = OnceLock::new();

/// Starts the export on a thread of its own, which uses this runtime. Fails if the URL or a certificate is unusable.
pub fn start(collector: &str, deployment: &str) -> Result<(), HttpError> {
    // A batch is sent until the collector accepts it. Meanwhile the queue fills, and further spans are dropped.
    let retry = RetryPolicy::default().with_max_retries(usize::MAX).with_max_delay(Duration::from_secs(30));
    let exporter =
        SpanExporter::builder().with_http().with_endpoint(without_user(collector)).with_timeout(Duration::MAX);
    let exporter = exporter.with_retry_policy(retry).with_http_client(Collector::new(collector)?).build()?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let deployment = KeyValue::new("deployment.environment.name", deployment.to_owned());
    let resource = Resource::builder_empty().with_service_name("petstore").with_attributes([version, deployment]);
    let resource = resource.with_detector(Box::new(EnvResourceDetector::new()));
    let service = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let resource = resource.with_attributes(service.map(|name| KeyValue::new("service.name", name))).build();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    let tracer = provider.tracer("petstore");
    EXPORT.set((provider, tracer)).map_err(|_| "traces are already exported".into())
}

/// Removes user information from a URL, because the SDK logs it. The client does not send it.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
}

/// Begins the span of a request, in the trace of its caller or a new one. `None` if the sampler rejects it.
pub fn begin(head: &Parts, method: Option<&'static str>, scheme: &str) -> Option<(TraceId, Span)> {
    let (_, tracer) = EXPORT.get()?;
    let header = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let parent = TraceParent::of(&head.headers).map_or_else(Context::new, |parent| {
        // Whole or not at all, because a part of it would be wrong.
        let state = header("tracestate").filter(|state| state.len() <= MAX_TEXT);
        let state = state.and_then(|state| shown(state).parse().ok()).unwrap_or_default();
        let (trace, span, flags) = (parent.trace.0.into(), parent.span.into(), TraceFlags::new(parent.sampled.into()));
        Context::new().with_remote_span_context(SpanContext::new(trace, span, flags, true, state))
    });
    let span =
        tracer.build_with_context(tracer.span_builder(method.unwrap_or("HTTP")).with_kind(SpanKind::Server), &parent);
    let mut span = Some(span).filter(opentelemetry::trace::Span::is_recording)?;
    span.set_attribute(KeyValue::new("http.request.method", method.unwrap_or("_OTHER")));
    span.set_attribute(KeyValue::new("url.scheme", scheme.to_owned()));
    span.set_attribute(KeyValue::new("url.path", shown(head.uri.path())));
    span.set_attributes(header("user-agent").map(|agent| KeyValue::new("user_agent.original", shown(agent))));
    let trace = TraceId(u128::from_be_bytes(span.span_context().trace_id().to_bytes()));
    Some((trace, Context::new().with_span(span)))
}

/// Ends the span of a request with its method, its path template, if the path is known, and its response. `None` if the
/// client went away.
pub fn end(request: &Span, method: Option<&str>, route: Option<&str>, response: Option<(StatusCode, &HeaderValue)>) {
    let span = request.span();
    if let Some(route) = route {
        span.update_name(format!("{} {route}", method.unwrap_or("HTTP")));
        span.set_attribute(KeyValue::new("http.route", route.to_owned()));
    }
    if let Some((status, id)) = response {
        let id = Value::Array(Array::String(vec![shown(id.to_str().unwrap_or_default()).into()]));
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        span.set_attribute(KeyValue::new("http.response.header.x-request-id", id));
    }
    if response.is_none_or(|(status, _)| status.is_server_error()) {
        let error = response.as_ref().map_or("abandoned", |(status, _)| status.as_str());
        span.set_attribute(KeyValue::new("error.type", error.to_owned()));
        span.set_status(Status::error(""));
    }
    span.end();
}

/// Sends the queued spans, within 5 s. Later spans are lost. The SDK logs the number of spans that did not fit in the queue.
pub async fn flush() {
    if let Some((provider, _)) = EXPORT.get() {
        let _ = tokio::task::spawn_blocking(|| provider.shutdown()).await;
    }
}

/// Runs `call` so that the spans of its writes are below `request`. Boxed, because most requests have no span.
pub fn within<F: Future>(request: Option<&Span>, call: F) -> impl Future<Output = F::Output> + use<F> {
    match request {
        None => Either::Left(call),
        Some(request) => Either::Right(Box::pin(call.with_context(request.clone()))),
    }
}

/// Records a write whose commit has just ended, if its request has a span.
pub fn write_spans(queued: Instant, began: Instant) {
    if Context::map_current(Context::has_active_span)
        && let Some((_, tracer)) = EXPORT.get()
    {
        let now = SystemTime::now();
        let (queued, began) = (now - queued.elapsed(), now - began.elapsed());
        tracer.span_builder("write queue").with_start_time(queued).start(tracer).end_with_timestamp(began);
        tracer.span_builder("commit").with_start_time(began).start(tracer).end_with_timestamp(now);
    }
}

/// Returns the beginning of a client's text, without keys.
fn shown(text: &str) -> String {
    let mut text = String::from_utf8_lossy(&without_keys(text.as_bytes())).into_owned();
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// The client of the collector.
#[derive(Debug)]
struct Collector {
    client: Arc<Client>,
    /// Timeout of an attempt.
    timeout: Duration,
    runtime: Handle,
    /// True during an outage, which is logged once.
    is_failing: AtomicBool,
}

impl Collector {
    fn new(url: &str) -> Result<Self, HttpError> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let of_traces = |name| {
            set(format!("OTEL_EXPORTER_OTLP_TRACES_{name}")).or_else(|| set(format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let timeout = of_traces("TIMEOUT").and_then(|timeout| timeout.parse().ok());
        let timeout = Duration::from_millis(timeout.unwrap_or(10_000));
        let tls = match url.split_once("://") {
            Some(("http", _)) => None,
            Some(("https", _)) => Some(tls::connector_at_start(of_traces("CERTIFICATE"))?),
            _ => return Err("the collector's URL begins neither with http:// nor with https://".into()),
        };
        let client = Arc::new(Client::new(&url.parse()?, tls));
        Ok(Self { client, timeout, runtime: Handle::current(), is_failing: AtomicBool::new(false) })
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (client, timeout) = (Arc::clone(&self.client), self.timeout);
        let post = async move { client.send("POST", request.headers(), request.body(), timeout).await };
        // On the runtime, because the thread of the export has no sockets.
        let answer = self.runtime.spawn(post).await?.map(|response| response.status);
        let failed = !answer.as_ref().is_ok_and(StatusCode::is_success);
        let why = answer.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        match (self.is_failing.swap(failed, Ordering::Relaxed), failed) {
            (false, true) => tracing::warn!(why, "cannot export spans"),
            (true, false) => tracing::info!("exporting spans again"),
            _ => {}
        }
        Ok(Response::builder().status(answer?).body(Bytes::new())?)
    }
}
