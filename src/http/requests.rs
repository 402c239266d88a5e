//! How many requests the API had, minute by minute, for the last hour.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::domain::Timestamp;

/// How many minutes are kept, the one that runs included.
pub const MINUTES: usize = 60;

const MINUTE: i64 = 60_000;

/// A request costs one addition here. Which minute it belongs to is found out later, by [`Requests::last_hour`] or
/// [`Requests::follow`], from how much was added in between.
#[derive(Debug, Default)]
pub struct Requests {
    total: AtomicU64,
    history: Mutex<History>,
}

#[derive(Debug)]
struct History {
    /// Counts by minute since 1970, modulo [`MINUTES`].
    counts: [u64; MINUTES],
    /// The minute up to which `counts` holds; nothing before the first look.
    minute: Option<i64>,
    /// The total that `counts` accounts for.
    seen: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { counts: [0; MINUTES], minute: None, seen: 0 }
    }
}

impl Requests {
    /// Counts a request for an operation of the API; health checks, pages and files are none.
    pub fn count(&self, path: &str) {
        if path.starts_with("/v1/") {
            self.total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts of the last minutes, the oldest first, the one that runs last.
    pub fn last_hour(&self, now: Timestamp) -> [u64; MINUTES] {
        let mut history = self.history();
        let minute = history.advance(self.total.load(Ordering::Relaxed), now);
        std::array::from_fn(|position| history.counts[slot(minute + 1 + position as i64)])
    }

    /// Closes each minute's count when it ends. Never ends.
    pub async fn follow(&self, clock: &Clock) {
        loop {
            let now = clock.now();
            self.history().advance(self.total.load(Ordering::Relaxed), now);
            let left = MINUTE - now.as_milliseconds().rem_euclid(MINUTE);
            tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// Puts what was added since the last look into the minute of that look, and goes on to the minute of `now`.
    fn advance(&mut self, total: u64, now: Timestamp) -> i64 {
        let minute = now.as_milliseconds().div_euclid(MINUTE);
        // A clock that was set back stays in the minute it had reached until it gets there again.
        let last = self.minute.unwrap_or(minute);
        self.counts[slot(last)] += total - self.seen;
        self.seen = total;
        let minute = minute.max(last);
        for skipped in (last + 1..=minute).take(MINUTES) {
            self.counts[slot(skipped)] = 0;
        }
        if minute - last > MINUTES as i64 {
            self.counts = [0; MINUTES];
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

    fn count(requests: &Requests, times: u64) {
        (0..times).for_each(|_| requests.count("/v1/pets"));
    }

    #[test]
    fn each_minute_has_what_came_in_it() {
        let requests = Requests::default();
        requests.last_hour(NOW);
        count(&requests, 3);
        requests.count("/livez");
        requests.last_hour(after(1));
        count(&requests, 2);
        assert_eq!(requests.last_hour(after(1))[57..], [0, 3, 2]);
        assert_eq!(requests.last_hour(after(3))[55..], [0, 3, 2, 0, 0]);
        assert_eq!(requests.last_hour(after(59))[..3], [3, 2, 0]);
        assert_eq!(requests.last_hour(after(60))[..2], [2, 0]);
        assert_eq!(requests.last_hour(after(61)).iter().sum::<u64>(), 0);
    }

    #[test]
    fn a_clock_that_jumps_neither_panics_nor_doubles() {
        let requests = Requests::default();
        requests.last_hour(after(100));
        count(&requests, 5);
        assert_eq!(requests.last_hour(NOW).iter().sum::<u64>(), 5);
        count(&requests, 1);
        assert_eq!(requests.last_hour(after(100))[59], 6);
        count(&requests, 1);
        assert_eq!(requests.last_hour(after(10_000_000)).iter().sum::<u64>(), 0);
    }
}
