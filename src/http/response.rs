//! Responses of operations, which have a complete body and need no box.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

pub type Response = axum::http::Response<Full<Bytes>>;

/// A response with a body that is JSON already.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
