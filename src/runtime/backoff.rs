//! Exponential backoff.

use std::time::Duration;

/// Delays that double from `min` to `max`. Each is reduced by a random part of up to half, so that processes that lost the
/// same server do not reconnect at the same time.
#[derive(Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    attempts: u32,
}

impl Backoff {
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, attempts: 0 }
    }

    /// Continues after `attempts` delays.
    pub const fn after(min: Duration, max: Duration, attempts: u32) -> Self {
        Self { min, max, attempts }
    }

    pub fn next_delay(&mut self) -> Duration {
        let delay = self.min.saturating_mul(1 << self.attempts.min(10)).min(self.max);
        self.attempts = self.attempts.saturating_add(1);
        // Without random bytes, waits for the full delay.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        delay / 2 + (delay / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_differ() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        let delays: Vec<_> = (0..40).map(|_| backoff.next_delay()).collect();
        assert!(delays[0] >= min / 2 && delays[0] <= min, "{delays:?}");
        assert!(delays[4] > delays[0], "{delays:?}");
        let long = &delays[10..];
        assert!(long.iter().all(|delay| *delay >= max / 2 && *delay <= max), "{delays:?}");
        assert!(long.iter().any(|delay| *delay != long[0]), "{delays:?}");
    }
}
