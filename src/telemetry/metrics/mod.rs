//! Metrics for Prometheus.
//!
//! Counting is an atomic addition at a known place, without look-up, lock or allocation, so it is always on.
//! `docs/metrics.md` has names, units and meanings, which `/metrics` shows from there.
//!
//! Not the crates `prometheus-client` and `prometheus`: their families look up labels under a lock, and the code that fills
//! their encoders would be as long as `text.rs`, which it would replace. The first also has another format (OpenMetrics).

mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use process::write_process;
pub use text::Exposition;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bounds in nanoseconds: fine for requests, which take microseconds, and up to the timeouts of clients.
const DURATIONS: [u64; 18] = [
    50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000,
    100_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000, 30_000_000_000,
];

/// Bounds for the number of writes in a batch, up to its maximum.
const SIZES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// A histogram. Each bucket counts the values up to its bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// Ratio of the displayed unit to the unit of values.
    per_unit: f64,
    /// One for each bound, and one for larger values.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram of durations, displayed in seconds.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(&DURATIONS, 1e9)
    }
}

impl Histogram {
    /// Returns a histogram of numbers of writes.
    pub fn of_sizes() -> Self {
        Self::new(&SIZES, 1.0)
    }

    fn new(bounds: &'static [u64], per_unit: f64) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, per_unit, buckets, sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.iter().position(|&bound| value <= bound).unwrap_or(self.bounds.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the number of values up to each bound, and of all values.
    fn cumulative(&self) -> (Vec<(f64, u64)>, u64) {
        let mut count = 0;
        let up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let counts: Vec<_> = self.buckets.iter().map(up_to).collect();
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / self.per_unit);
        (bounds.zip(counts).collect(), count)
    }

    fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.per_unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_counts_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::of_sizes();
        for value in [1, 2, 3, 4, 512, 513] {
            histogram.observe(value);
        }
        let (bounds, count) = histogram.cumulative();
        assert_eq!(bounds[..4], [(1.0, 1), (2.0, 2), (4.0, 4), (8.0, 4)]);
        assert_eq!((bounds[9], count), ((512.0, 5), 6));
        assert_eq!(histogram.sum(), 1_035.0);
    }
}
