//! Points in time, and the clock they are read from.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970-01-01T00:00:00Z. Displayed as `2026-11-20T09:30:00.123Z` (ISO 8601, UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// Range of [`Timestamp::write`]'s own algorithm: from 1970 to 9999-12-30T21:59:59.999Z, the end of the last second that
/// `jiff` can represent.
const FAST: std::ops::RangeInclusive<i64> = 0..=253_402_207_199_999;

impl Timestamp {
    pub const fn from_milliseconds(milliseconds: i64) -> Self {
        Self(milliseconds)
    }

    pub const fn as_milliseconds(self) -> i64 {
        self.0
    }

    /// Rounds down to the minute.
    pub const fn to_the_minute(self) -> Self {
        Self(self.0 - self.0.rem_euclid(60_000))
    }

    pub const fn minus_one_millisecond(self) -> Self {
        Self(self.0 - 1)
    }

    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Appends the displayed form.
    ///
    /// Faster than `Display`, because a page of orders has up to 200 timestamps; a test compares the two. Years are
    /// counted from March, so that a leap day is the last day of its year, in eras of 400 years of equal length.
    pub fn write(self, out: &mut Vec<u8>) {
        if !FAST.contains(&self.0) {
            return out.extend_from_slice(self.to_string().as_bytes());
        }
        // Day 0 of an era is 0000-03-01; 1970-01-01 comes 719,468 days later.
        let (days, time) = ((self.0 / 86_400_000) as u32 + 719_468, (self.0 % 86_400_000) as u32);
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + 400 * era + u32::from(month <= 2);

        let (seconds, milliseconds) = (time / 1_000, time % 1_000);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut two_digits = |at: usize, number: u32| {
            text[at] = b'0' + (number / 10) as u8;
            text[at + 1] = b'0' + (number % 10) as u8;
        };
        two_digits(0, year / 100);
        two_digits(2, year % 100);
        two_digits(5, month);
        two_digits(8, day);
        two_digits(11, seconds / 3_600);
        two_digits(14, seconds / 60 % 60);
        two_digits(17, seconds % 60);
        two_digits(20, milliseconds / 10);
        text[22] = b'0' + (milliseconds % 10) as u8;
        out.extend_from_slice(&text);
    }

    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Times after the year 9999 are displayed as the maximum.
        let shown = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{shown:.3}")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Source of time, injected so that tests can set it.
///
/// It has two readings. The wall clock ([`Clock::now`]) is shown to people and moves when the system clock is set. The
/// steady clock ([`Clock::steady`]) decides what has expired. It is the wall time at process start plus the time elapsed
/// since, including suspensions of the machine, and never goes backwards.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    Fixed(Arc<Fixed>),
}

/// Readings of a test's clock, in milliseconds since 1970.
#[derive(Debug)]
pub struct Fixed {
    wall: AtomicI64,
    steady: AtomicI64,
}

impl Clock {
    /// Returns a clock whose two readings stay at `now` until a test moves them.
    pub fn fixed(now: Timestamp) -> Self {
        Self::Fixed(Arc::new(Fixed { wall: AtomicI64::new(now.0), steady: AtomicI64::new(now.0) }))
    }

    /// Moves both readings to `now`.
    pub fn set(&self, now: Timestamp) {
        self.jump_to(now);
        self.readings().steady.store(now.0, Ordering::Relaxed);
    }

    /// Moves the wall clock alone, as setting the system clock does.
    pub fn jump_to(&self, now: Timestamp) {
        self.readings().wall.store(now.0, Ordering::Relaxed);
    }

    /// Moves both readings forward, as elapsing time does.
    pub fn advance(&self, by: Duration) {
        self.jump_to(self.now().plus(by));
        self.readings().steady.store(self.steady().plus(by).0, Ordering::Relaxed);
    }

    fn readings(&self) -> &Fixed {
        match self {
            Self::System => panic!("the system clock cannot be set"),
            Self::Fixed(readings) => readings,
        }
    }

    /// Returns the wall time.
    pub fn now(&self) -> Timestamp {
        self.read(ClockId::Realtime)
    }

    /// Returns the wall time as of the system's last tick, at most 10 ms ago, for a quarter of the cost.
    pub fn recent(&self) -> Timestamp {
        self.read(ClockId::RealtimeCoarse)
    }

    fn read(&self, clock: ClockId) -> Timestamp {
        match self {
            Self::System => Timestamp(milliseconds(clock)),
            Self::Fixed(readings) => Timestamp(readings.wall.load(Ordering::Relaxed)),
        }
    }

    /// Returns the steady time as of the system's last tick.
    pub fn steady(&self) -> Timestamp {
        match self {
            Self::System => {
                let start = &*PROCESS_START;
                let suspended = start.suspended.load(Ordering::Relaxed);
                Timestamp(start.booted_at + suspended + milliseconds(ClockId::MonotonicCoarse))
            }
            Self::Fixed(readings) => Timestamp(readings.steady.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time elapsed since an arbitrary fixed moment, for rate limits.
    pub fn elapsed(&self) -> Duration {
        match self {
            Self::System => START.elapsed(),
            Self::Fixed(_) => Duration::from_millis(self.steady().0.unsigned_abs()),
        }
    }

    /// Keeps the steady clock right when the machine is suspended, and warns once when the wall clock and the steady
    /// clock differ by more than a minute. Never returns.
    pub async fn follow(&self) {
        let mut warned = false;
        loop {
            if let Self::System = self {
                PROCESS_START.suspended.fetch_max(suspended(), Ordering::Relaxed);
            }
            let ahead = self.now().0.saturating_sub(self.steady().0);
            if !warned && ahead.unsigned_abs() > STEP {
                warned = true;
                tracing::warn!(
                    seconds = ahead / 1_000,
                    "system clock stepped, expiry still follows the time at start; restart if that was wrong"
                );
            }
            tokio::time::sleep(FOLLOW).await;
        }
    }
}

/// Difference between the two readings that triggers a warning, in milliseconds.
const STEP: u64 = 60_000;

/// Interval of [`Clock::follow`]. After a suspension, the steady clock may be behind for this long.
const FOLLOW: Duration = Duration::from_secs(1);

/// Moment of the first call of [`Clock::elapsed`].
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Anchor of the steady clock, set by its first reading.
static PROCESS_START: LazyLock<ProcessStart> = LazyLock::new(|| ProcessStart {
    booted_at: milliseconds(ClockId::Realtime) - milliseconds(ClockId::Boottime),
    suspended: AtomicI64::new(suspended()),
});

struct ProcessStart {
    /// Time of boot, by the wall clock at process start. Milliseconds since 1970.
    booted_at: i64,
    /// Total time of suspension since boot, in milliseconds. Kept here because the coarse clock leaves it out, and
    /// reading the clock that includes it costs six times as much.
    suspended: AtomicI64,
}

fn suspended() -> i64 {
    milliseconds(ClockId::Boottime) - milliseconds(ClockId::Monotonic)
}

fn milliseconds(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_agrees_with_display() {
        let written = |time: Timestamp| {
            let mut text = Vec::new();
            time.write(&mut text);
            String::from_utf8(text).unwrap()
        };
        // Every day of five centuries, each at another time of day; leap days; the ends of the range.
        let days = (0..200_000).map(|day| 86_400_000 * day + 7_919 * day % 86_400_000);
        let ends = [FAST.start(), FAST.end()].into_iter().flat_map(|end| [end - 1, *end, end + 1]);
        for milliseconds in days.chain(ends).chain([0, -1, 951_782_399_999, 951_782_400_000, i64::MIN, i64::MAX]) {
            let time = Timestamp::from_milliseconds(milliseconds);
            assert_eq!(written(time), time.to_string(), "{milliseconds}");
        }
    }

    #[test]
    fn setting_the_system_clock_leaves_the_steady_clock_alone() {
        let (begun, second) = (Timestamp::from_milliseconds(1_795_167_000_123), Duration::from_secs(1));
        let clock = Clock::fixed(begun);
        clock.jump_to(begun.minus(Duration::from_hours(24)));
        assert_eq!(clock.steady(), begun);
        clock.advance(second);
        assert_eq!(clock.steady(), begun.plus(second));
        assert_eq!(clock.now(), begun.minus(Duration::from_hours(24)).plus(second));
    }

    #[test]
    fn steady_time_of_a_new_process_is_the_wall_time() {
        let steady = Clock::System.steady();
        let apart = Clock::System.now().0.abs_diff(steady.0);
        assert!(apart < 1_000, "{apart} ms");
        assert!(Clock::System.steady() >= steady);
    }

    #[test]
    fn time_is_displayed_in_utc_with_milliseconds() {
        assert_eq!(Timestamp::from_milliseconds(1_795_167_000_000).to_string(), "2026-11-20T09:30:00.000Z");
        assert_eq!(Timestamp::from_milliseconds(1_795_167_000_120).to_string(), "2026-11-20T09:30:00.120Z");
        assert_eq!(Timestamp::from_milliseconds(-1).to_the_minute(), Timestamp::from_milliseconds(-60_000));
    }
}
