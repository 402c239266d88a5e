//! Lets pages of other origins call the API from a browser (CORS, Fetch standard, section 3.2).

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};

use crate::api::addresses::Addresses;
use crate::api::operations::{Listener, Operation};
use crate::api::response::Response;

/// The headers that pages may send. Generated clients set `user-agent`, which Firefox sends. The last four are those of W3C
/// Trace Context, Baggage and Sentry, which browser instrumentation adds to every request.
const ALLOWED: HeaderValue = HeaderValue::from_static(
    "authorization,content-type,idempotency-key,prefer,x-request-id,user-agent,traceparent,tracestate,baggage,sentry-trace",
);

/// The response headers that scripts may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "allow,link,location,retry-after,www-authenticate,x-request-id,deprecation,idempotent-replayed,preference-applied,\
     sunset,ratelimit,ratelimit-policy",
);

/// Maximum age of a remembered preflight, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The origins whose pages may call the operations of a listener.
#[derive(Clone, Debug)]
pub struct Cors {
    listener: Listener,
    addresses: Arc<Addresses>,
    origins: Vec<String>,
    methods: HeaderValue,
}

impl Cors {
    /// `None` if no page of another origin may call the operations of `listener`.
    pub fn of(listener: Listener, addresses: &Arc<Addresses>) -> Option<Self> {
        let mut origins = addresses.cors_origins.clone();
        match listener {
            Listener::Store => {}
            // The API reference on the store listener calls the messages listener from the browser.
            Listener::Messages => origins.extend(addresses.store_origins()),
            Listener::Ops => return None,
        }
        if origins.is_empty() {
            return None;
        }
        let operations = Operation::ALL.into_iter().filter(|operation| operation.is_on(listener));
        let methods: BTreeSet<_> = operations.flat_map(Operation::methods).map(Method::as_str).collect();
        let methods = HeaderValue::try_from(Vec::from_iter(methods).join(",")).expect("methods are visible ASCII");
        Some(Self { listener, addresses: Arc::clone(addresses), origins, methods })
    }

    /// Returns the origin of the page that sent the request, if it may call the operations.
    pub fn allowed_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(ORIGIN)?;
        let is_allowed = self.origins.iter().any(|allowed| allowed == origin)
            || self.listener == Listener::Messages
                && self.addresses.reached_by(self.listener, request).base_url.origin() == *origin;
        is_allowed.then(|| origin.clone())
    }

    /// The response to a preflight. A browser reads it only if its origin is allowed.
    pub fn answer_preflight(&self) -> Response {
        let mut response = Response::default();
        response.headers_mut().extend([
            (ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone()),
            (ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ]);
        response
    }

    /// Writes the headers that every response has.
    pub fn write_headers(allowed_origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        if let Some(origin) = allowed_origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        // A cache must not return the response for one origin to another origin.
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// Returns whether a browser asks with this request whether a page may send another one.
pub fn is_preflight(request: &Parts) -> bool {
    let has = |name| request.headers.contains_key(name);
    request.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
}
