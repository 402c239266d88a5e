//! Status of scheduled backups, for metrics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::Timestamp;
use crate::telemetry::metrics::Counter;

/// Written by the schedule, read by any thread.
#[derive(Debug, Default)]
pub struct BackupStatus {
    /// Milliseconds since 1970; 0 before the first backup.
    last_success: AtomicI64,
    last_bytes: AtomicU64,
    /// Backups that failed in this process.
    pub failures: Counter,
    /// The interval of scheduled backups. Not set without a schedule.
    pub every: OnceLock<Duration>,
}

impl BackupStatus {
    /// Returns the time of the newest backup, by this process or an earlier one. `None` if there is no backup.
    pub fn last_success(&self) -> Option<Timestamp> {
        let at = self.last_success.load(Ordering::Acquire);
        (at != 0).then(|| Timestamp::from_milliseconds(at))
    }

    /// Returns the size of the newest backup.
    pub fn last_bytes(&self) -> u64 {
        self.last_bytes.load(Ordering::Acquire)
    }

    pub fn succeeded(&self, at: Timestamp, bytes: u64) {
        self.last_bytes.store(bytes, Ordering::Release);
        self.last_success.store(at.as_milliseconds(), Ordering::Release);
    }
}
