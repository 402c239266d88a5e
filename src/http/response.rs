//! Responses of operations, which have a complete body and need no box.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

pub type Response = axum::http::Response<Full<Bytes>>;

/// The headers of every operation's response. Caches must not store a response, because it is for one account or soon out of
/// date. Browsers must not guess its type.
///
/// Copying the map for each response takes half as long as inserting the headers. A map grows at three quarters of its
/// capacity, so this one has room for the headers that the middleware adds.
static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
});

/// A response with a body that is JSON already.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    *response.headers_mut() = HEADERS.clone();
    response
}
