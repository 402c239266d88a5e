//! The write-ahead log: checkpoints, the limit of its size, and the removal of a failed commit.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::time::Instant;

use crate::disk::folder::{Folder, unavailable};
use crate::disk::generation::{FRAME_HEADER, LOG_HEADER};
use crate::disk::wal_index::WalIndex;
use crate::readers::Readers;
use crate::{Error, Options, Result};

/// Maximum time that a checkpoint waits for readers of this process, and again for those of other processes. The next
/// checkpoint continues.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(50);

/// Time that an attempt to begin a transaction waits for the lock of another process. The writer repeats the attempts: see
/// `Writer::begin`.
pub const LOCK_POLL: Duration = Duration::from_millis(1);

/// Interval between attempts to write back a full WAL.
const FULL_FOR: Duration = Duration::from_millis(500);

/// Syncs commits that a killed process had written but not synced. SQLite's recovery makes them visible, so a retry gets their
/// stored response, which must not precede the sync.
pub fn sync_recovered(conn: &Connection) -> Result<()> {
    let checkpoint = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    match checkpoint.map_err(Error::from) {
        Err(Error::SyncFailed(why)) => Err(Error::SyncFailed(why)),
        // A checkpoint begins with the sync, so any other error comes after it.
        _ => Ok(()),
    }
}

pub struct Wal {
    path: PathBuf,
    index: Arc<WalIndex>,
    readers: Arc<Readers>,
    /// Size, in pages, from which the WAL is written back.
    checkpoint_pages: u32,
    /// Size, in pages, at which the next checkpoint is attempted.
    checkpoint_at: u32,
    /// Size, in pages, from which no write begins.
    limit: u32,
    full_until: Instant,
    /// Maximum time that the connection waits for other processes, except in checkpoints.
    busy_timeout: Duration,
}

impl Wal {
    pub fn new(index: Arc<WalIndex>, readers: Arc<Readers>, folder: &Folder, options: &Options) -> Self {
        Self {
            path: folder.log(),
            index,
            readers,
            checkpoint_pages: options.checkpoint_pages,
            checkpoint_at: options.checkpoint_pages,
            limit: options.wal_pages,
            full_until: Instant::now(),
            busy_timeout: options.busy_timeout,
        }
    }

    /// Writes the WAL back and restarts it, so that it does not grow without bound and slow down readers. Returns whether it
    /// was due. An error is fatal to the process.
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> std::result::Result<bool, String> {
        let pages = self.index.version().wal_pages();
        if pages < self.checkpoint_pages {
            self.checkpoint_at = self.checkpoint_pages;
        }
        if pages < self.checkpoint_at {
            return Ok(false);
        }
        self.checkpoint_at = pages + self.checkpoint_pages;
        self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)")
            .map_err(|error| format!("a checkpoint failed: {error}"))?;
        Ok(true)
    }

    /// Fails while the WAL has its maximum size because another process reads for a long time. Otherwise the WAL would fill
    /// the disk. Writes the WAL back once the read has ended, so that the next commit truncates it.
    pub fn make_room(&mut self, conn: &Connection) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        if self.full_until <= Instant::now() {
            self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)")?;
            self.full_until = Instant::now() + FULL_FOR;
        }
        if !self.is_full() {
            return Ok(());
        }
        Err(Error::Unavailable("the write-ahead log is full: another process has been reading for too long".into()))
    }

    /// Removes what a commit wrote before its sync failed. The kernel counts such pages as written, so a later sync succeeds
    /// although the disk may not have them. The next process would read them, and append commits that a power loss
    /// destroys with them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    pub fn remove_failed_commit(&self, conn: &Connection) -> Result<()> {
        conn.busy_timeout(self.busy_timeout)?;
        // Keeps other processes from appending. Pages that one has appended already have replaced the failed ones.
        let _lock = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
        let pages = u64::from(self.index.version().wal_pages());
        let page_size: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let committed = LOG_HEADER + pages * (FRAME_HEADER + u64::from(page_size));
        let cut = || {
            let log = OpenOptions::new().write(true).open(&self.path)?;
            if log.metadata()?.len() > committed { log.set_len(committed) } else { Ok(()) }
        };
        cut().map_err(unavailable(&self.path))
    }

    pub const fn index(&self) -> &Arc<WalIndex> {
        &self.index
    }

    pub fn is_empty(&self) -> bool {
        self.index.version().wal_pages() == 0
    }

    fn is_full(&self) -> bool {
        self.index.version().wal_pages() >= self.limit && !self.index.is_written_back()
    }

    /// Writes the WAL back as far as readers of other processes allow. Fails only if a sync failed.
    pub fn checkpoint(&self, conn: &Connection, pragma: &str) -> Result<()> {
        let run = || conn.query_row(pragma, [], |row| row.get::<_, i64>(0));
        let checkpoint =
            conn.busy_timeout(CHECKPOINT_TIMEOUT).and_then(|()| self.readers.without_kept(CHECKPOINT_TIMEOUT, run));
        // Setting a timeout only stores a number and cannot fail.
        let _ = conn.busy_timeout(LOCK_POLL);
        match checkpoint.map_err(Error::from) {
            Err(Error::SyncFailed(why)) => Err(Error::SyncFailed(why)),
            // After any other error, commits are safe in the WAL, and the next checkpoint retries.
            _ => Ok(()),
        }
    }
}
