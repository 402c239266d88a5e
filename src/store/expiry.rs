//! Deletion of rows that have expired.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::Result;

/// Number of rows deleted per transaction.
const STEP: u32 = 256;

/// Pause between two transactions.
const PAUSE: Duration = Duration::from_millis(20);

/// Pause once no expired row is left, and at the start, when a clock that is ahead may still be set right.
const REST: Duration = Duration::from_secs(10);

/// Deletes rows in transactions short enough not to delay other writes. `delete` deletes at most the given number of them
/// and returns the number deleted. The log calls them `rows`. Never returns.
pub async fn delete_expired<D: Future<Output = Result<u64>>>(rows: &str, delete: impl Fn(u32) -> D) {
    sleep(REST).await;
    loop {
        let full = match delete(STEP).await {
            Ok(deleted) => deleted == u64::from(STEP),
            Err(error) => {
                // An aborted job ends here: it fails only because the store is closed.
                yield_now().await;
                tracing::warn!(%error, rows, "cannot delete expired rows, retrying");
                false
            }
        };
        sleep(if full { PAUSE } else { REST }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn full_steps_follow_each_other_without_a_rest() {
        let calls = Cell::new(0);
        let deletion = delete_expired("rows", async |limit| {
            calls.set(calls.get() + 1);
            Ok(if calls.get() < 3 { u64::from(limit) } else { 0 })
        });
        timeout(2 * REST, deletion).await.unwrap_err();
        assert_eq!(calls.get(), 3);
    }
}
