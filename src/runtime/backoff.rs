//! Exponential backoff.

use std::time::Duration;

/// Minimum and maximum of delays.
pub type Range = (Duration, Duration);

/// Returns the delay after a failure that `earlier` ones precede. Delays double from the minimum to the maximum. Each is
/// reduced by a random part of up to half, so that processes that lost the same server do not reconnect at the same time.
pub fn delay_after((min, max): Range, earlier: u32) -> Duration {
    let delay = min.saturating_mul(1 << earlier.min(10)).min(max);
    // Without random bytes, waits for the full delay.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    delay / 2 + (delay / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_differ() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(5));
        let delays: Vec<_> = (0..40).map(|earlier| delay_after((min, max), earlier)).collect();
        assert!(delays[0] >= min / 2 && delays[0] <= min, "{delays:?}");
        assert!(delays[4] > delays[0], "{delays:?}");
        let long = &delays[10..];
        assert!(long.iter().all(|delay| *delay >= max / 2 && *delay <= max), "{delays:?}");
        assert!(long.iter().any(|delay| *delay != long[0]), "{delays:?}");
    }
}
