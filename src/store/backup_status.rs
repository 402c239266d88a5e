//! Status of scheduled backups, for metrics.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::Timestamp;
use crate::telemetry::metrics::Counter;

/// Written by the schedule, read by any thread.
#[derive(Debug, Default)]
pub struct BackupStatus {
    /// The time and the size of the newest backup, by this process or an earlier one. `None` if there is no backup.
    pub newest: Mutex<Option<(Timestamp, u64)>>,
    /// Backups that failed in this process.
    pub failures: Counter,
    /// The interval of scheduled backups. Not set without a schedule.
    pub every: OnceLock<Duration>,
}
