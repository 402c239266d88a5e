//! The write-ahead log: written back into the database in time, and never larger than it may be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Options;
use super::readers::Readers;
use super::wal_index::WalIndex;
use crate::store::{Result, StoreError};

/// From how many pages (of 4 KiB) on the WAL is written back into the database.
const CHECKPOINT_PAGES: u32 = 4_096;

/// How long a checkpoint waits for our readers, and for those of other processes, before it leaves the rest to the next
/// one.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(50);

/// While the WAL is as large as it may be: how long it is not worth another try.
const FULL_FOR: Duration = Duration::from_millis(500);

pub struct Wal {
    index: Arc<WalIndex>,
    readers: Arc<Readers>,
    /// The size, in pages, at which the next checkpoint is tried.
    checkpoint_at: u32,
    /// The size, in pages, from which on no write begins.
    limit: u32,
    full_until: Instant,
    /// How long the connection waits for other processes but for checkpoints.
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

    /// Writes the WAL back and lets it begin anew, so that it neither grows without end nor slows readers down. An error
    /// is fatal to the process.
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> std::result::Result<(), String> {
        let pages = self.index.stamp().wal_pages();
        if pages < CHECKPOINT_PAGES {
            self.checkpoint_at = CHECKPOINT_PAGES;
        }
        if pages < self.checkpoint_at {
            return Ok(());
        }
        self.checkpoint_at = pages + CHECKPOINT_PAGES;
        self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)").map_err(|error| format!("a checkpoint failed: {error}"))
    }

    /// Refuses to write while the WAL is as large as it may be: somebody has been reading for so long, and without an
    /// end to it the disk would be full. Once they are done, the WAL is cut back and writes go on.
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
        self.index.stamp().wal_pages() >= self.limit
    }

    /// Writes the WAL back as far as readers of other processes let it. Fails only where the disk can't be trusted.
    fn checkpoint(&self, conn: &Connection, pragma: &str) -> Result<()> {
        let run = || conn.query_row(pragma, [], |row| row.get::<_, i64>(0));
        let checkpoint =
            conn.busy_timeout(CHECKPOINT_PATIENCE).and_then(|()| self.readers.without_kept(CHECKPOINT_PATIENCE, run));
        // Setting a timeout only stores a number and can't fail.
        let _ = conn.busy_timeout(self.busy_timeout);
        match checkpoint.map_err(StoreError::from) {
            Err(StoreError::SyncFailed(why)) => Err(StoreError::SyncFailed(why)),
            // Whatever else stood in the way, every commit is safe in the WAL and the next checkpoint tries again.
            _ => Ok(()),
        }
    }
}
