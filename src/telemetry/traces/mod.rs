//! Traces: a span per request, and below it one for each write's wait in the queue and one for its commit.
//!
//! The official OpenTelemetry crates sample, queue and export them, with the feature `otlp`. Their queue is bounded, and a
//! thread of its own empties it, so requests never wait. `docs/tracing.md` is for operators.

#[cfg_attr(not(feature = "otlp"), path = "disabled.rs")]
mod otlp;

pub use otlp::{Span, begin, end, flush, start, within, write_spans};

/// Returns the collector's URL for traces from the environment. `None` if it names no collector or disables traces.
pub fn collector(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let is = |name, value| set(name).is_some_and(|given| given.eq_ignore_ascii_case(value));
    let is_off = is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none");
    let of_all = || set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}/v1/traces", url.trim_end_matches('/')));
    set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(of_all).filter(|_| !is_off)
}
