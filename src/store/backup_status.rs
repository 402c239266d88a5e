//! Status of scheduled backups, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::Timestamp;

/// Written by the schedule, read by any thread.
#[derive(Debug, Default)]
pub struct BackupStatus {
    /// Milliseconds since 1970; 0 before the first backup.
    last_success: AtomicI64,
    last_bytes: AtomicU64,
    failures: AtomicU64,
    /// Milliseconds; 0 without a schedule.
    every: AtomicU64,
}

impl BackupStatus {
    /// Returns the interval of scheduled backups. `None` without a schedule.
    pub fn every(&self) -> Option<Duration> {
        let every = self.every.load(Ordering::Acquire);
        (every != 0).then(|| Duration::from_millis(every))
    }

    /// Returns the time of the newest backup, by this process or an earlier one. `None` if there is no backup.
    pub fn last_success(&self) -> Option<Timestamp> {
        let at = self.last_success.load(Ordering::Acquire);
        (at != 0).then(|| Timestamp::from_milliseconds(at))
    }

    /// Returns the size of the newest backup.
    pub fn last_bytes(&self) -> u64 {
        self.last_bytes.load(Ordering::Acquire)
    }

    /// Returns the number of backups that failed in this process.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

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
