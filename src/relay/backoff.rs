//! How soon to try again, and how often to speak of it.

use std::time::Duration;

/// Between two attempts: the pause doubles from the first to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Pauses that grow, each shortened at random, so that processes that have lost the same broker do not come back to it at
/// one moment.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub fn next(&mut self) -> Duration {
        let pause = PAUSE.saturating_mul(1 << self.attempts.min(10)).min(LONGEST_PAUSE);
        self.attempts += 1;
        // Without random bytes it is the longer half.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

/// Says once that something is in the way, and once that it is over.
#[derive(Debug, Default)]
pub struct Trouble {
    told: bool,
}

impl Trouble {
    pub fn tell(&mut self, why: &str) {
        if self.told {
            tracing::debug!(why, "messages still can't be relayed");
        } else {
            tracing::warn!(why, "messages can't be relayed: they wait, and it is tried again and again");
            self.told = true;
        }
    }

    pub fn is_over(&mut self) {
        if self.told {
            tracing::info!("messages are relayed again");
            self.told = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_differ() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= PAUSE / 2 && pauses[0] <= PAUSE, "{pauses:?}");
        assert!(pauses[4] > pauses[0], "{pauses:?}");
        let long = &pauses[10..];
        assert!(long.iter().all(|pause| *pause >= LONGEST_PAUSE / 2 && *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(long.iter().any(|pause| *pause != long[0]), "{pauses:?}");
    }
}
