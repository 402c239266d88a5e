//! Responses of operations, which have a complete body and need no box.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Either, Full};

pub type Response = axum::http::Response<Full<Bytes>>;

/// The body of a response as it is sent: complete for operations, any body for pages.
pub type Sent = Either<Full<Bytes>, Body>;

/// A response with a body that is JSON already.
#[inline]
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    with_content_type("application/json", status, body)
}

/// A response that no cache may store, because it is for one account or soon out of date, and whose type no browser may
/// guess.
#[inline]
pub fn with_content_type(content_type: &'static str, status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The content of a complete body, which needs no waiting.
pub fn content(body: &Full<Bytes>) -> Bytes {
    let frame = body.clone().frame().now_or_never().flatten();
    frame.and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default()
}
