//! Requests to the API per minute, for the last hour.

use std::collections::VecDeque;
use std::iter;
use std::time::Duration;

use parking_lot::Mutex;

/// Number of minutes that are kept, including the current one.
pub const MINUTES: usize = 60;

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub succeeded: u64,
    /// Those with a status of 400 or above.
    pub failed: u64,
}

/// The totals at the ends of the last minutes, counted from the start of the process, latest first.
#[derive(Debug, Default)]
pub struct RequestHistory(Mutex<VecDeque<Requests>>);

impl RequestHistory {
    /// Returns the counts of the last minutes, oldest first. `total` is the number of all requests until now.
    pub fn last_hour(&self, total: impl Fn() -> Requests) -> [Requests; MINUTES] {
        let ends = self.0.lock();
        // Counted under the lock, so that it is not older than the end of the last minute.
        let mut end = total();
        let mut minutes = [Requests::default(); MINUTES];
        for (minute, start) in minutes.iter_mut().rev().zip(ends.iter().chain(iter::once(&Requests::default()))) {
            *minute = Requests { succeeded: end.succeeded - start.succeeded, failed: end.failed - start.failed };
            end = *start;
        }
        minutes
    }

    /// Closes the count of each minute at its end. Never ends.
    pub async fn follow(&self, total: impl Fn() -> Requests) {
        let mut minutes = tokio::time::interval(Duration::from_mins(1));
        loop {
            minutes.tick().await;
            self.end_minute(&total);
        }
    }

    fn end_minute(&self, total: impl Fn() -> Requests) {
        let mut ends = self.0.lock();
        ends.push_front(total());
        ends.truncate(MINUTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A third of the requests failed.
    const fn total(requests: u64) -> Requests {
        Requests { succeeded: requests - requests / 3, failed: requests / 3 }
    }

    fn last_hour(history: &RequestHistory, requests: u64) -> [u64; MINUTES] {
        history.last_hour(|| total(requests)).map(|minute| minute.succeeded + minute.failed)
    }

    #[test]
    fn growth_belongs_to_the_minute_in_which_it_was() {
        let history = RequestHistory::default();
        assert_eq!(last_hour(&history, 3)[58..], [0, 3]);
        history.end_minute(|| total(3));
        assert_eq!(last_hour(&history, 5)[57..], [0, 3, 2]);
        assert_eq!(history.last_hour(|| total(5))[58..], [total(3), Requests { succeeded: 2, failed: 0 }]);
        history.end_minute(|| total(5));
        history.end_minute(|| total(5));
        assert_eq!(last_hour(&history, 5)[55..], [0, 3, 2, 0, 0]);
    }

    #[test]
    fn hour_ends_after_sixty_minutes() {
        let history = RequestHistory::default();
        history.end_minute(|| total(3));
        (0..58).for_each(|_| history.end_minute(|| total(5)));
        assert_eq!(last_hour(&history, 6)[..3], [3, 2, 0]);
        assert_eq!(last_hour(&history, 6)[59], 1);
        history.end_minute(|| total(6));
        assert_eq!(last_hour(&history, 6)[..3], [2, 0, 0]);
        (0..60).for_each(|_| history.end_minute(|| total(6)));
        assert_eq!(last_hour(&history, 6), [0; MINUTES]);
    }
}
