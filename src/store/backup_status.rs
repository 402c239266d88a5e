//! What came of scheduled backups, for who watches over them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use std::time::Duration;

use crate::domain::Timestamp;

/// Counters that are written by the schedule and read by anybody.
#[derive(Debug)]
pub struct BackupStatus {
    /// Milliseconds since 1970; the smallest number there is while there was none.
    last_success: AtomicI64,
    last_bytes: AtomicU64,
    failures: AtomicU64,
    /// Milliseconds; 0 while there is no schedule.
    every: AtomicU64,
}

impl Default for BackupStatus {
    fn default() -> Self {
        Self {
            last_success: AtomicI64::new(i64::MIN),
            last_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            every: AtomicU64::new(0),
        }
    }
}

impl BackupStatus {
    /// How often backups are to be made, where there is a schedule.
    pub fn every(&self) -> Option<Duration> {
        let every = self.every.load(Ordering::Acquire);
        (every != 0).then(|| Duration::from_millis(every))
    }

    /// When the newest backup was made, by this process or one before it, as far as the schedule knows of any.
    pub fn last_success(&self) -> Option<Timestamp> {
        let at = self.last_success.load(Ordering::Acquire);
        (at != i64::MIN).then(|| Timestamp::from_milliseconds(at))
    }

    /// The size of that one.
    pub fn last_bytes(&self) -> u64 {
        self.last_bytes.load(Ordering::Acquire)
    }

    /// How many attempts of this process have failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// There is a schedule.
    pub fn scheduled(&self, every: Duration) {
        self.every.store(u64::try_from(every.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub fn succeeded(&self, at: Timestamp, bytes: u64) {
        self.last_bytes.store(bytes, Ordering::Release);
        self.last_success.store(at.as_milliseconds(), Ordering::Release);
    }

    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }
}
