//! Requests to the API per minute, for the last hour.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::domain::Timestamp;

/// Number of minutes that are kept, including the current one.
pub const MINUTES: usize = 60;

const MINUTE: i64 = 60_000;

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub succeeded: u64,
    /// Those with a status of 400 or above.
    pub failed: u64,
}

/// Divides the growth of a total among minutes.
#[derive(Debug, Default)]
pub struct RequestHistory(Mutex<History>);

#[derive(Debug)]
struct History {
    /// Counts by minute since 1970, modulo [`MINUTES`].
    counts: [Requests; MINUTES],
    /// The minute of the last look. `None` before the first one.
    minute: Option<i64>,
    /// The total that `counts` accounts for.
    seen: Requests,
}

impl Default for History {
    fn default() -> Self {
        Self { counts: [Requests::default(); MINUTES], minute: None, seen: Requests::default() }
    }
}

impl RequestHistory {
    /// Returns the counts of the last minutes, oldest first. `total` is the number of all requests by `now`.
    pub fn last_hour(&self, total: impl Fn() -> Requests, now: Timestamp) -> [Requests; MINUTES] {
        let mut history = self.history();
        // Counted under the lock, so that no caller brings a total that is older than the last one.
        let minute = history.advance(total(), now);
        std::array::from_fn(|position| history.counts[slot(minute + 1 + position as i64)])
    }

    /// Closes the count of each minute at its end. Never ends.
    pub async fn follow(&self, total: impl Fn() -> Requests, clock: &Clock) {
        loop {
            let now = clock.now();
            self.history().advance(total(), now);
            let left = MINUTE - now.as_milliseconds().rem_euclid(MINUTE);
            tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// Adds the growth since the last look to the minute of that look, then advances to the minute of `now`.
    fn advance(&mut self, total: Requests, now: Timestamp) -> i64 {
        let minute = now.as_milliseconds().div_euclid(MINUTE);
        // After the clock was set back, the current minute stays until the clock reaches it again.
        let last = self.minute.unwrap_or(minute);
        let count = &mut self.counts[slot(last)];
        count.succeeded += total.succeeded - self.seen.succeeded;
        count.failed += total.failed - self.seen.failed;
        self.seen = total;
        let minute = minute.max(last);
        for skipped in (last + 1..=minute).take(MINUTES) {
            self.counts[slot(skipped)] = Requests::default();
        }
        if minute - last > MINUTES as i64 {
            self.counts = [Requests::default(); MINUTES];
        }
        self.minute = Some(minute);
        minute
    }
}

fn slot(minute: i64) -> usize {
    minute.rem_euclid(MINUTES as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

    fn after(minutes: u64) -> Timestamp {
        NOW.plus(Duration::from_secs(60 * minutes))
    }

    /// A third of the requests failed.
    const fn total(requests: u64) -> Requests {
        Requests { succeeded: requests - requests / 3, failed: requests / 3 }
    }

    fn last_hour(history: &RequestHistory, requests: u64, now: Timestamp) -> [u64; MINUTES] {
        history.last_hour(|| total(requests), now).map(|minute| minute.succeeded + minute.failed)
    }

    #[test]
    fn growth_belongs_to_the_minute_of_the_last_look() {
        let history = RequestHistory::default();
        last_hour(&history, 0, NOW);
        last_hour(&history, 3, after(1));
        assert_eq!(last_hour(&history, 5, after(1))[57..], [0, 3, 2]);
        assert_eq!(history.last_hour(|| total(5), after(1))[58..], [total(3), Requests { succeeded: 2, failed: 0 }]);
        assert_eq!(last_hour(&history, 5, after(3))[55..], [0, 3, 2, 0, 0]);
        assert_eq!(last_hour(&history, 5, after(59))[..3], [3, 2, 0]);
        assert_eq!(last_hour(&history, 5, after(60))[..2], [2, 0]);
        assert_eq!(last_hour(&history, 5, after(61)), [0; MINUTES]);
    }

    #[test]
    fn clock_jumps_neither_panic_nor_count_twice() {
        let history = RequestHistory::default();
        last_hour(&history, 0, after(100));
        assert_eq!(last_hour(&history, 5, NOW).iter().sum::<u64>(), 5);
        assert_eq!(last_hour(&history, 6, after(100))[59], 6);
        assert_eq!(last_hour(&history, 7, after(10_000_000)), [0; MINUTES]);
    }
}
