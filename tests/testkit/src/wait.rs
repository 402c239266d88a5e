//! Waiting, with an end.

use std::time::{Duration, Instant};

/// Longer than any response takes. A process that does not respond within it hangs.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `done`, at most `limit`, and returns how long it took.
///
/// # Panics
///
/// Panics if `done` does not become true within `limit`. The message contains `what`.
pub fn within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what} took longer than {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

/// Waits for `future`, long enough for the slowest machine.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("the future completes within 20 seconds")
}
