//! Which pages of other origins may call the API from a browser (the Fetch standard's CORS protocol).

use std::time::Duration;

use axum::Router;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::deprecation::{DEPRECATION_HEADER, SUNSET_HEADER};
use super::edge::X_REQUEST_ID;
use super::idempotency::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use super::rate_limit::{RATE_LIMIT, RATE_LIMIT_POLICY};

/// `routes` as pages of `origins` may call them; nothing where there are none. A preflight is answered before any other check.
pub fn for_origins(routes: Router, origins: &[String]) -> Option<Router> {
    if origins.is_empty() {
        return None;
    }
    let origins = origins.iter().filter_map(|origin| HeaderValue::try_from(origin.as_str()).ok());
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::HEAD, Method::POST])
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
    Some(routes.layer(cors))
}
