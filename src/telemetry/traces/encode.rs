//! Encodes spans as OTLP/JSON: names in lower camel case, ids in hexadecimal, 64-bit numbers as text
//! (opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Attributes follow the conventions for HTTP server spans
//! (opentelemetry.io/docs/specs/semconv/http/http-spans).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::Version;
use serde_json::{Value, json};

use super::{End, Span};
use crate::redaction::without_keys;

/// The methods that the specification lists. Others become `_OTHER`, because clients may invent them.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR`.
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// Encodes the resource, which all spans of a process share.
pub fn resource(attributes: &[(String, String)]) -> Value {
    let attributes: Vec<_> = attributes.iter().map(|(name, value)| text(name, value)).collect();
    json!({ "attributes": attributes })
}

/// Encodes the body of a request to the collector.
pub fn request(resource: &Value, spans: &[Span]) -> Vec<u8> {
    let spans: Vec<_> = spans.iter().map(span).collect();
    let scope = json!({ "name": "petstore", "version": env!("CARGO_PKG_VERSION") });
    let body =
        json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }] });
    without_keys(body.to_string().as_bytes()).into_owned()
}

fn span(span: &Span) -> Value {
    let method = METHODS.into_iter().find(|known| span.method == *known);
    let mut attributes = vec![
        text("http.request.method", method.unwrap_or("_OTHER")),
        text("url.scheme", if span.https { "https" } else { "http" }),
        text("url.path", &span.path),
    ];
    if method.is_none() {
        attributes.push(text("http.request.method_original", super::beginning(span.method.as_str()).as_str()));
    }
    let version = if span.version == Version::HTTP_10 { "1.0" } else { "1.1" };
    attributes.push(text("network.protocol.version", version));
    attributes.extend(span.user_agent.as_deref().map(|agent| text("user_agent.original", agent)));
    attributes.extend(span.route.as_deref().map(|route| text("http.route", route)));
    let mut failed = false;
    match &span.end {
        End::Answered { status, request_id } => {
            attributes.push(attribute("http.response.status_code", &json!({ "intValue": status.to_string() })));
            let ids = json!({ "arrayValue": { "values": [{ "stringValue": request_id }] } });
            attributes.push(attribute("http.response.header.x-request-id", &ids));
            if *status >= 500 {
                failed = true;
                attributes.push(text("error.type", &status.to_string()));
            }
        }
        End::Abandoned => {
            failed = true;
            attributes.push(text("error.type", "abandoned"));
        }
    }
    let mut encoded = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": name(method, span.route.as_deref()),
        "kind": SERVER,
        "startTimeUnixNano": nanoseconds(span.began, Duration::ZERO),
        "endTimeUnixNano": nanoseconds(span.began, span.took),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = parent.to_string().into();
    }
    if let Some(state) = &span.state {
        encoded["traceState"] = state.as_str().into();
    }
    if failed {
        encoded["status"] = json!({ "code": ERROR });
    }
    encoded
}

/// Returns a span name of low cardinality: never the path.
fn name(method: Option<&str>, route: Option<&str>) -> String {
    let method = method.unwrap_or("HTTP");
    route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"))
}

fn text(key: &str, value: &str) -> Value {
    attribute(key, &json!({ "stringValue": value }))
}

fn attribute(key: &str, value: &Value) -> Value {
    json!({ "key": key, "value": value })
}

fn nanoseconds(began: SystemTime, later: Duration) -> String {
    let since = began.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(later);
    since.as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;
    use crate::telemetry::trace_context::{SpanId, TraceId};

    fn abandoned(method: &str) -> Span {
        Span {
            trace: TraceId(0xabc),
            id: SpanId(0xdef),
            parent: None,
            state: None,
            began: UNIX_EPOCH + Duration::from_nanos(1_795_167_000_123_456_789),
            took: Duration::from_micros(3),
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            https: true,
            path: "/v1/pets".into(),
            version: Version::HTTP_11,
            user_agent: None,
            route: None,
            end: End::Abandoned,
        }
    }

    #[test]
    fn invented_methods_do_not_become_names() {
        let encoded = span(&abandoned("BREW"));
        assert_eq!(encoded["name"], "HTTP");
        expect_test::expect![[r#"{"traceId":"00000000000000000000000000000abc","spanId":"0000000000000def","name":"HTTP","kind":2,"startTimeUnixNano":"1795167000123456789","endTimeUnixNano":"1795167000123459789","attributes":[{"key":"http.request.method","value":{"stringValue":"_OTHER"}},{"key":"url.scheme","value":{"stringValue":"https"}},{"key":"url.path","value":{"stringValue":"/v1/pets"}},{"key":"http.request.method_original","value":{"stringValue":"BREW"}},{"key":"network.protocol.version","value":{"stringValue":"1.1"}},{"key":"error.type","value":{"stringValue":"abandoned"}}],"status":{"code":2}}"#]].assert_eq(&encoded.to_string());
    }
}
