//! The clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::domain::Timestamp;

/// Source of time, injected so that tests can set it.
///
/// It has two readings. The wall clock ([`Clock::now`]) is shown to people and moves when the system clock is set. The
/// steady clock ([`Clock::steady`]) decides what has expired. It is the wall time at process start plus the time elapsed
/// since, including suspensions of the machine, and never goes backwards.
#[derive(Clone, Debug)]
pub enum Clock {
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
        let reading = || AtomicI64::new(now.as_milliseconds());
        Self::Fixed(Arc::new(Fixed { wall: reading(), steady: reading() }))
    }

    /// Moves both readings to `now`.
    pub fn set(&self, now: Timestamp) {
        self.jump_to(now);
        self.readings().steady.store(now.as_milliseconds(), Ordering::Relaxed);
    }

    /// Moves the wall clock alone, as setting the system clock does.
    pub fn jump_to(&self, now: Timestamp) {
        self.readings().wall.store(now.as_milliseconds(), Ordering::Relaxed);
    }

    /// Moves both readings forward, as elapsing time does.
    pub fn advance(&self, by: Duration) {
        self.jump_to(self.now().plus(by));
        self.readings().steady.store(self.steady().plus(by).as_milliseconds(), Ordering::Relaxed);
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
    pub fn coarse_now(&self) -> Timestamp {
        self.read(ClockId::RealtimeCoarse)
    }

    fn read(&self, clock: ClockId) -> Timestamp {
        match self {
            Self::System => Timestamp::from_milliseconds(milliseconds(clock)),
            Self::Fixed(readings) => Timestamp::from_milliseconds(readings.wall.load(Ordering::Relaxed)),
        }
    }

    /// Returns the steady time.
    pub fn steady(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::from_milliseconds(*BOOTED_AT + milliseconds(ClockId::Boottime)),
            Self::Fixed(readings) => Timestamp::from_milliseconds(readings.steady.load(Ordering::Relaxed)),
        }
    }

    /// Returns the earlier of the two readings, for the deletion of old rows: the clock may have been ahead at the start.
    pub fn earlier(&self) -> Timestamp {
        self.steady().min(self.now())
    }

    /// Warns once when the wall clock and the steady clock differ by more than a minute.
    pub async fn follow(&self) {
        let ahead = || self.now().as_milliseconds().saturating_sub(self.steady().as_milliseconds());
        while ahead().unsigned_abs() <= STEP {
            tokio::time::sleep(FOLLOW).await;
        }
        tracing::warn!(
            seconds = ahead() / 1_000,
            "system clock stepped, expiry still follows the time at start; restart if that was wrong"
        );
    }
}

/// Difference between the two readings that triggers a warning, in milliseconds.
const STEP: u64 = 60_000;

/// Interval of [`Clock::follow`].
const FOLLOW: Duration = Duration::from_secs(1);

/// Time of boot, by the wall clock at the first reading of the steady clock. Milliseconds since 1970.
static BOOTED_AT: LazyLock<i64> = LazyLock::new(|| milliseconds(ClockId::Realtime) - milliseconds(ClockId::Boottime));

fn milliseconds(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_system_clock_leaves_the_steady_clock_alone() {
        let (begun, second) = (Timestamp::from_milliseconds(1_795_167_000_123), Duration::from_secs(1));
        let clock = Clock::fixed(begun);
        clock.jump_to(begun.minus(Duration::from_hours(24)));
        assert_eq!(clock.steady(), begun);
        assert_eq!(clock.earlier(), begun.minus(Duration::from_hours(24)));
        clock.advance(second);
        assert_eq!(clock.steady(), begun.plus(second));
        assert_eq!(clock.now(), begun.minus(Duration::from_hours(24)).plus(second));
    }

    #[tokio::test(start_paused = true)]
    async fn clock_that_is_more_than_a_minute_off_has_stepped() {
        let (begun, minute) = (Timestamp::from_milliseconds(1_795_167_000_123), Duration::from_mins(1));
        let clock = Clock::fixed(begun);
        for near in [begun, begun.plus(minute), begun.minus(minute)] {
            clock.jump_to(near);
            assert!(tokio::time::timeout(60 * minute, clock.follow()).await.is_err(), "{near:?}");
        }
        clock.jump_to(begun.minus(minute + Duration::from_millis(1)));
        clock.follow().await;
    }

    #[test]
    fn steady_time_of_a_new_process_is_the_wall_time() {
        let steady = Clock::System.steady();
        let apart = Clock::System.now().as_milliseconds().abs_diff(steady.as_milliseconds());
        assert!(apart < STEP, "{apart} ms");
        assert!(Clock::System.steady() >= steady);
    }
}
