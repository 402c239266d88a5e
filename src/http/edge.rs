//! The way in and out of every request: its id, the last resort against a panic, and the log.

use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tower::Service;

use super::error::{ApiError, Cause};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A door's routes, and what happens around each of their answers.
#[derive(Clone, Debug)]
pub struct Edge(Router);

impl Edge {
    pub fn new(routes: Router) -> Self {
        Self(routes)
    }

    /// Answers a request: always, and with its id.
    pub async fn answer(&self, request: Request<Body>) -> Response {
        let id = request_id(request.headers());
        let logged = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| (request.method().clone(), request.uri().path().to_owned()));
        let answering = AssertUnwindSafe(self.0.clone().call(request)).catch_unwind();
        let mut response = match answering.await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(panic) => ApiError::internal(format!("panic: {}", panic_message(&*panic))).into_response(),
        };
        if let Some(Cause(cause)) = response.extensions_mut().remove() {
            let status = response.status().as_u16();
            tracing::error!(request_id = id.to_str().unwrap_or_default(), status, cause, "request failed");
        }
        if let Some((method, path)) = logged {
            let status = response.status().as_u16();
            tracing::debug!(request_id = id.to_str().unwrap_or_default(), %method, path, status, "request");
        }
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    /// An error as the bytes of a last answer, for a connection on which no request came about.
    pub fn answer_without_request(error: &ApiError) -> Vec<u8> {
        let id = new_request_id();
        let body = error.body();
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\nx-request-id: {}\r\n\r\n",
            error.status(),
            body.len(),
            id.to_str().unwrap_or_default(),
        );
        [head.into_bytes(), body].concat()
    }
}

/// The caller's id where it is 1 to 128 visible ASCII characters, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers
        .get(X_REQUEST_ID)
        .filter(|id| (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic));
    given.cloned().unwrap_or_else(new_request_id)
}

/// Unique without a call for random bytes each time: this process's random number, and a count.
fn new_request_id() -> HeaderValue {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| {
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("the operating system has random bytes");
        u64::from_ne_bytes(random)
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::try_from(format!("{:016x}-{count:x}", *PROCESS)).expect("hexadecimal digits are visible ASCII")
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of unknown cause")
}
