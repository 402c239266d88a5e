//! Samples warnings that would otherwise be logged once per request. The first warning of each cause is logged; the
//! others are counted, and the count is logged once per second.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of causes that are counted separately. The text of further causes is not logged.
const CAUSES: usize = 16;
const OTHER: &str = "other causes";

#[derive(Debug)]
pub struct Sampler {
    /// Number of warnings of each cause since the last report, without the one that was logged.
    counts: Mutex<HashMap<String, u64>>,
    /// Logs a cause with its count.
    log: fn(&str, u64),
}

impl Sampler {
    pub fn new(log: fn(&str, u64)) -> Self {
        Self { counts: Mutex::default(), log }
    }

    /// Returns true if the caller should log this warning. Otherwise counts it.
    pub fn is_first(&self, cause: &str) -> bool {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(cause) {
            *count += 1;
            return false;
        }
        if counts.len() >= CAUSES {
            *counts.entry(OTHER.to_owned()).or_default() += 1;
            return false;
        }
        counts.insert(cause.to_owned(), 0);
        true
    }

    /// Logs the counts. Forgets causes that had no warning since the last report.
    pub fn report(&self) {
        let mut counts = self.counts.lock();
        counts.retain(|_, count| *count > 0);
        let reported = counts.clone();
        counts.values_mut().for_each(|count| *count = 0);
        drop(counts);
        for (cause, count) in reported {
            (self.log)(&cause, count);
        }
    }

    /// Reports every second. Never ends.
    pub async fn follow(&self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static LOGGED: std::cell::RefCell<Vec<(String, u64)>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    fn sampler() -> Sampler {
        Sampler::new(|cause, count| LOGGED.with_borrow_mut(|logged| logged.push((cause.to_owned(), count))))
    }

    /// Returns the causes and counts that a report logs, sorted.
    fn report(sampler: &Sampler) -> Vec<(String, u64)> {
        sampler.report();
        let mut logged = LOGGED.take();
        logged.sort();
        logged
    }

    #[test]
    fn first_of_each_cause_is_logged_and_the_others_counted() {
        let sampler = sampler();
        let logged = ["full", "full", "lost", "full"].map(|cause| sampler.is_first(cause));
        assert_eq!(logged, [true, false, true, false]);
        assert_eq!(report(&sampler), [("full".to_owned(), 2)]);
        assert!(sampler.is_first("lost"), "a cause without a new warning is forgotten");
        assert!(!sampler.is_first("full"), "a cause with new warnings is still counted");
        assert_eq!(report(&sampler), [("full".to_owned(), 1)]);
        assert_eq!(report(&sampler), []);
    }

    #[test]
    fn causes_beyond_the_limit_are_counted_together() {
        let sampler = sampler();
        let first = (0..CAUSES + 5).filter(|cause| sampler.is_first(&cause.to_string())).count();
        assert_eq!(first, CAUSES);
        assert_eq!(report(&sampler), [(OTHER.to_owned(), 5)]);
    }
}
