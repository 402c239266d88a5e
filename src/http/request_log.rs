//! The line of a request in the log, where it is asked for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode};

use crate::domain::AccountId;

/// What is known of a request before it is answered.
#[derive(Debug)]
pub struct Line {
    method: Method,
    path: String,
    trace_id: Option<String>,
    account: Whose,
}

/// Carried by a request that is logged, for who finds out whose it is.
#[derive(Clone, Debug, Default)]
pub struct Whose(Arc<OnceLock<AccountId>>);

impl Whose {
    /// Tells the log of this request whose it is, where there will be a line.
    pub fn note(account: AccountId, extensions: &Extensions) {
        if let Some(Self(whose)) = extensions.get() {
            // A request has one account.
            let _ = whose.set(account);
        }
    }
}

impl Line {
    pub fn of(request: &mut Parts) -> Self {
        let account = Whose::default();
        request.extensions.insert(account.clone());
        Self {
            method: request.method.clone(),
            // Without what follows the question mark: what people search for is nobody's business.
            path: request.uri.path().to_owned(),
            trace_id: trace_id(&request.headers),
            account,
        }
    }

    pub fn write(self, id: &HeaderValue, route: &str, status: StatusCode, took: Duration) {
        let Self { method, path, trace_id, account } = self;
        tracing::info!(
            request_id = id.to_str().unwrap_or_default(),
            trace_id,
            account = account.0.get().map(|account| account.0),
            %method,
            route,
            path,
            status = status.as_u16(),
            seconds = took.as_secs_f64(),
            "request"
        );
    }
}

/// The id of the trace that a request belongs to (W3C Trace Context, section 3.2).
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let mut fields = parent.split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |field: &str, length: usize| {
        field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    // Versions to come may have more fields; version 00 has none, and ff is none.
    let is_known = version != "ff" && (version != "00" || fields.next().is_none());
    let is_valid = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    let is_some = trace.bytes().any(|byte| byte != b'0') && span.bytes().any(|byte| byte != b'0');
    (is_known && is_valid && is_some).then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(traceparent: &str) -> Option<String> {
        trace_id(&HeaderMap::from_iter([("traceparent".parse().unwrap(), traceparent.parse().unwrap())]))
    }

    #[test]
    fn the_id_of_a_trace_is_taken_where_it_is_one() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for taken in [format!("00-{trace}-00f067aa0ba902b7-01"), format!("cc-{trace}-00f067aa0ba902b7-01-more")] {
            assert_eq!(of(&taken).as_deref(), Some(trace), "{taken}");
        }
        for refused in [
            String::new(),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        ] {
            assert_eq!(of(&refused), None, "{refused}");
        }
    }
}
