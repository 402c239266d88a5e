//! The write-ahead log: checkpoints and the limit of its size.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Options;
use super::readers::Readers;
use super::wal_index::WalIndex;
use crate::store::{Result, StoreError};

/// Size of the WAL, in pages of 4 KiB, from which it is written back into the database.
const CHECKPOINT_PAGES: u32 = 4_096;

/// Maximum time that a checkpoint waits for readers of this process, and again for those of other processes. The next
/// checkpoint continues.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(50);

/// Interval between attempts to truncate a full WAL.
const FULL_FOR: Duration = Duration::from_millis(500);

pub struct Wal {
    index: Arc<WalIndex>,
    readers: Arc<Readers>,
    /// Size, in pages, at which the next checkpoint is attempted.
    checkpoint_at: u32,
    /// Size, in pages, from which no write begins.
    limit: u32,
    full_until: Instant,
    /// Maximum time that the connection waits for other processes, except in checkpoints.
    busy_timeout: Duration,
}

impl Wal {
    pub fn new(index: Arc<WalIndex>, readers: Arc<Readers>, options: &Options) -> Self {
        Self {
            index,
            readers,
            checkpoint_at: CHECKPOINT_PAGES,
            limit: options.wal_pages,
            full_until: Instant::now(),
            busy_timeout: options.busy_timeout,
        }
    }

    /// Writes the WAL back and restarts it, so that it does not grow without bound and slow down readers. An error is fatal
    /// to the process.
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> std::result::Result<(), String> {
        let pages = self.index.version().wal_pages();
        if pages < CHECKPOINT_PAGES {
            self.checkpoint_at = CHECKPOINT_PAGES;
        }
        if pages < self.checkpoint_at {
            return Ok(());
        }
        self.checkpoint_at = pages + CHECKPOINT_PAGES;
        self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)").map_err(|error| format!("a checkpoint failed: {error}"))
    }

    /// Fails while the WAL has its maximum size because another process reads for a long time. Otherwise the WAL would fill
    /// the disk. Truncates the WAL once the read has ended.
    pub fn make_room(&mut self, conn: &Connection) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        if self.full_until <= Instant::now() {
            self.checkpoint(conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
            self.full_until = Instant::now() + FULL_FOR;
        }
        if !self.is_full() {
            return Ok(());
        }
        Err(StoreError::Unavailable(
            "the write-ahead log is full: another process has been reading for too long".into(),
        ))
    }

    fn is_full(&self) -> bool {
        self.index.version().wal_pages() >= self.limit
    }

    /// Writes the WAL back as far as readers of other processes allow. Fails only if a sync failed.
    fn checkpoint(&self, conn: &Connection, pragma: &str) -> Result<()> {
        let run = || conn.query_row(pragma, [], |row| row.get::<_, i64>(0));
        let checkpoint =
            conn.busy_timeout(CHECKPOINT_TIMEOUT).and_then(|()| self.readers.without_kept(CHECKPOINT_TIMEOUT, run));
        // Setting a timeout only stores a number and cannot fail.
        let _ = conn.busy_timeout(self.busy_timeout);
        match checkpoint.map_err(StoreError::from) {
            Err(StoreError::SyncFailed(why)) => Err(StoreError::SyncFailed(why)),
            // After any other error, commits are safe in the WAL, and the next checkpoint retries.
            _ => Ok(()),
        }
    }
}
