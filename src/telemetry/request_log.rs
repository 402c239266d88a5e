//! The line of a request in the log, where it is asked for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, Method, StatusCode};

use super::trace_context::{TraceId, TraceParent};
use crate::domain::AccountId;

/// What is known of a request before it is answered.
#[derive(Debug)]
pub struct Line {
    method: Method,
    path: String,
    trace_id: Option<TraceId>,
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
            trace_id: TraceParent::of(&request.headers).map(|parent| parent.trace),
            account,
        }
    }

    /// The request is recorded in this trace: its caller's, or one that begins with it.
    #[cfg(feature = "otlp")]
    pub fn is_in(&mut self, trace: TraceId) {
        self.trace_id = Some(trace);
    }

    pub fn write(self, id: &HeaderValue, route: &str, status: StatusCode, took: Duration) {
        let Self { method, path, trace_id, account } = self;
        tracing::info!(
            request_id = id.to_str().unwrap_or_default(),
            trace_id = trace_id.map(tracing::field::display),
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
