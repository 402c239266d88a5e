//! Points in time, and the clock they are read from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970-01-01T00:00:00Z; shown as `2026-11-20T09:30:00.123Z` (ISO 8601, UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_milliseconds(milliseconds: i64) -> Self {
        Self(milliseconds)
    }

    pub const fn as_milliseconds(self) -> i64 {
        self.0
    }

    /// The start of the minute this point lies in.
    pub const fn to_the_minute(self) -> Self {
        Self(self.0 - self.0.rem_euclid(60_000))
    }

    pub const fn minus_one_millisecond(self) -> Self {
        Self(self.0 - 1)
    }

    pub fn minus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Only a time beyond the year 9999 does not fit; it is shown as the last one that does.
        let shown = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{shown:.3}")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where the time comes from. Everything that asks for it is given one, so that a test can set it.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `now` until [`Clock::set`].
    pub fn fixed(now: Timestamp) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(now.0)))
    }

    pub fn set(&self, now: Timestamp) {
        match self {
            Self::System => panic!("the system's clock can't be set"),
            Self::Fixed(milliseconds) => milliseconds.store(now.0, Ordering::Relaxed),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.read(ClockId::Realtime)
    }

    /// The time as of the system's last tick, at most 10 ms ago: enough to tell whether something has ended, at a
    /// quarter of the price.
    pub fn recent(&self) -> Timestamp {
        self.read(ClockId::RealtimeCoarse)
    }

    fn read(&self, clock: ClockId) -> Timestamp {
        match self {
            Self::System => {
                let now = clock_gettime(clock);
                Timestamp(now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000))
            }
            Self::Fixed(milliseconds) => Timestamp(milliseconds.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_utc_with_milliseconds() {
        assert_eq!(Timestamp::from_milliseconds(1_795_167_000_000).to_string(), "2026-11-20T09:30:00.000Z");
        assert_eq!(Timestamp::from_milliseconds(1_795_167_000_120).to_string(), "2026-11-20T09:30:00.120Z");
        assert_eq!(Timestamp::from_milliseconds(-1).to_the_minute(), Timestamp::from_milliseconds(-60_000));
    }
}
