//! `X-Request-Id`: on every response, and in every log line about its request.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

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
