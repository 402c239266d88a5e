//! Waiting, with an end.

use std::time::{Duration, Instant};

use crate::trial::is_full;

/// Longest wait for an event that must happen, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `done`, and returns the time it took: in a full run, which judges time, at most `limit`, otherwise at least a
/// minute.
///
/// # Panics
///
/// Panics if `done` does not become true in this time. The message contains `what`.
pub fn within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let limit = if is_full() { limit } else { limit.max(TIMEOUT) };
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what} took longer than {limit:?}");
        // Short waits are polled often, because their length is a measurement.
        std::thread::sleep((began.elapsed() / 10).clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
    began.elapsed()
}

/// Waits for a value. Panics as [`within`] does.
pub fn eventually<T>(limit: Duration, what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    within(limit, what, || {
        found = value();
        found.is_some()
    });
    found.unwrap()
}

/// Waits until `done`, at most [`TIMEOUT`].
pub async fn until(mut done: impl AsyncFnMut() -> bool) {
    soon(async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits for `future`, at most [`TIMEOUT`].
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("the future completes within a minute")
}
