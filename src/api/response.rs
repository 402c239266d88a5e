//! Responses of operations, which have a complete body and need no box, and `X-Request-Id`.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
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

/// The request's id, on every response and in every log line about the request.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the caller's id if it is 1 to 128 visible ASCII characters, otherwise a new one.
pub fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers
        .get(X_REQUEST_ID)
        .filter(|id| (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic));
    given.cloned().unwrap_or_else(new_request_id)
}

/// Returns the process's random number and a count: unique without a call for random bytes each time.
pub fn new_request_id() -> HeaderValue {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| getrandom::u64().expect("the operating system has random bytes"));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut id = [b'-'; 16 + 1 + 12];
    write_hex(&mut id[..16], *PROCESS);
    write_hex(&mut id[17..], COUNT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::from_bytes(&id).expect("hexadecimal digits are visible ASCII")
}

/// Fills `out` with the last hexadecimal digits of `number`. `format!` costs ten times as much.
fn write_hex(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}
