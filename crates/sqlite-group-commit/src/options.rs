//! Limits of an open database.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::observer::Observer;

/// Limits of a database, and what may be given up. The default creates a missing database.
#[derive(Clone, Debug)]
pub struct Options {
    /// Creates the database and its folder if they are missing.
    pub create: bool,
    /// True if acknowledged writes survive a power loss. Otherwise they survive the end of the process.
    pub durable: bool,
    /// Maximum number of queued writes, at least 1. By default 4,096.
    pub queue: usize,
    /// Number of connections for reads, at least 1. By default one more than cores.
    pub readers: usize,
    /// Maximum time that a caller waits for its write. By default 10 s: twice the time that a write may wait for another
    /// process, and less than clients and proxies usually wait.
    pub write_timeout: Duration,
    /// Maximum time that a batch waits for a writing process. By default 5 s.
    pub busy_timeout: Duration,
    /// Size of the write-ahead log, in pages of 4 KiB, from which it is written back into the database. By default 4,096.
    pub checkpoint_pages: u32,
    /// Size of the write-ahead log, in pages, from which no batch begins. The log grows while readers of other processes
    /// keep it from being written back. By default 245,000: with a batch of at most 60 MiB, the file stays below 1 GiB.
    pub wal_pages: u32,
    /// Counts what the database does. By default nothing.
    pub observer: Arc<dyn Observer>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            durable: true,
            queue: 4_096,
            readers: thread::available_parallelism().map_or(2, usize::from) + 1,
            write_timeout: Duration::from_secs(10),
            busy_timeout: Duration::from_secs(5),
            checkpoint_pages: 4_096,
            wal_pages: 245_000,
            observer: Arc::new(()),
        }
    }
}
