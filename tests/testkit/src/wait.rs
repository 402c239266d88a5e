//! Waiting, with an end.

use std::time::{Duration, Instant};

/// A process that does not respond within this time hangs.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `done`, at most `limit`, and returns the time it took.
///
/// # Panics
///
/// Panics if `done` does not become true within `limit`. The message contains `what`.
pub fn within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what} took longer than {limit:?}");
        // Short waits are polled often, because their length is a measurement.
        std::thread::sleep((began.elapsed() / 10).clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
    began.elapsed()
}

/// Waits for a value, at most `limit`. Panics as [`within`] does.
pub fn eventually<T>(limit: Duration, what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    within(limit, what, || {
        found = value();
        found.is_some()
    });
    found.unwrap()
}

/// Waits until `done`, long enough for the slowest machine.
pub async fn until(mut done: impl AsyncFnMut() -> bool) {
    soon(async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits for `future`, long enough for the slowest machine.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("the future completes within 20 seconds")
}
