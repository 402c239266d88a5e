//! Exponential backoff, and the log of an outage.

use std::time::Duration;

/// The delay doubles from `MIN_DELAY` to `MAX_DELAY`.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Exponential backoff. Each delay is reduced by a random part of up to half, so that processes that lost the same broker
/// do not reconnect at the same time.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub fn next(&mut self) -> Duration {
        let delay = MIN_DELAY.saturating_mul(1 << self.attempts.min(10)).min(MAX_DELAY);
        self.attempts += 1;
        // Without random bytes, waits for the full delay.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        delay / 2 + (delay / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

/// Logs the start and the end of an outage. Repeated failures are logged at level debug.
#[derive(Debug, Default)]
pub struct OutageLog {
    has_begun: bool,
}

impl OutageLog {
    pub fn report(&mut self, why: &str) {
        if self.has_begun {
            tracing::debug!(why, "cannot relay messages, retrying");
        } else {
            tracing::warn!(why, "cannot relay messages, they stay queued; retrying");
            self.has_begun = true;
        }
    }

    pub fn end(&mut self) {
        if self.has_begun {
            tracing::info!("relaying messages again");
            self.has_begun = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_differ() {
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..40).map(|_| backoff.next()).collect();
        assert!(delays[0] >= MIN_DELAY / 2 && delays[0] <= MIN_DELAY, "{delays:?}");
        assert!(delays[4] > delays[0], "{delays:?}");
        let long = &delays[10..];
        assert!(long.iter().all(|delay| *delay >= MAX_DELAY / 2 && *delay <= MAX_DELAY), "{delays:?}");
        assert!(long.iter().any(|delay| *delay != long[0]), "{delays:?}");
    }
}
