//! Lets pages of other origins call the API from a browser (CORS, Fetch standard).

use std::collections::HashSet;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::deprecation::{DEPRECATION_HEADER, SUNSET_HEADER};
use super::idempotency::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use super::operations::Operation;
use super::rate_limit::{RATE_LIMIT, RATE_LIMIT_POLICY};
use super::request_id::X_REQUEST_ID;
use crate::config::Listener;

/// Lets pages of `origins` call the operations of `listener`, and pages of the origin that `own` returns for a request.
/// `None` if `origins` is empty. A preflight request is answered before any other check.
pub fn layer(
    listener: Listener,
    origins: &[String],
    own: impl Fn(&HeaderMap) -> Option<String> + Send + Sync + 'static,
) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins = origins.to_vec();
    let is_allowed = move |origin: &HeaderValue, request: &Parts| {
        origins.iter().any(|allowed| allowed == origin) || own(&request.headers).is_some_and(|own| own == *origin)
    };
    let operations = Operation::ALL.into_iter().filter(|operation| operation.is_on(listener));
    let methods: HashSet<_> = operations.flat_map(Operation::methods).cloned().collect();
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(is_allowed))
        .allow_methods(Vec::from_iter(methods))
        .allow_headers([AUTHORIZATION, CONTENT_TYPE, IDEMPOTENCY_KEY, X_REQUEST_ID])
        .expose_headers([
            LINK,
            LOCATION,
            RETRY_AFTER,
            WWW_AUTHENTICATE,
            X_REQUEST_ID,
            DEPRECATION_HEADER,
            IDEMPOTENT_REPLAYED,
            SUNSET_HEADER,
            RATE_LIMIT,
            RATE_LIMIT_POLICY,
        ])
        .max_age(Duration::from_secs(600));
    Some(layer)
}
