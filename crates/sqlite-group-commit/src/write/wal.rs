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
    // A checkpoint begins with the sync, so any other error comes after it.
    write_back(conn, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Runs a checkpoint. Fails only if a sync failed. After any other error, commits are safe in the WAL, and the next checkpoint
/// retries.
fn write_back(conn: &Connection, pragma: &str) -> Result<()> {
    match conn.query_row(pragma, [], |_| Ok(())).map_err(Error::from) {
        Err(error @ Error::SyncFailed(_)) => Err(error),
        _ => Ok(()),
    }
}

pub struct Wal {
    path: PathBuf,
    pub index: Arc<WalIndex>,
    readers: Arc<Readers>,
    options: Options,
    /// Size, in pages, at which the next checkpoint is attempted.
    checkpoint_at: u32,
    full_until: Instant,
}

impl Wal {
    pub fn new(index: Arc<WalIndex>, readers: Arc<Readers>, folder: &Folder, options: Options) -> Self {
        let (path, checkpoint_at, full_until) = (folder.log(), options.checkpoint_pages, Instant::now());
        Self { path, index, readers, options, checkpoint_at, full_until }
    }

    /// Writes the WAL back and restarts it if it is due, so that it does not grow without bound and slow down readers. An error
    /// is fatal to the process.
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> Result<(), String> {
        let (pages, step) = (self.index.version().wal_pages(), self.options.checkpoint_pages);
        if pages < step {
            self.checkpoint_at = step;
        }
        if pages < self.checkpoint_at {
            return Ok(());
        }
        self.checkpoint_at = pages + step;
        self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)").map_err(|error| format!("a checkpoint failed: {error}"))
    }

    /// Fails while the WAL has its maximum size because another process reads for a long time. Otherwise the WAL would fill
    /// the disk. Writes the WAL back once the read has ended, so that the next commit truncates it.
    pub fn make_room(&mut self, conn: &Connection) -> Result<()> {
        if self.is_full() && self.full_until <= Instant::now() {
            self.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)")?;
            self.full_until = Instant::now() + FULL_FOR;
        }
        let why = "the write-ahead log is full: another process has been reading for too long";
        if self.is_full() { Err(Error::Unavailable(why.into())) } else { Ok(()) }
    }

    /// Removes what a commit wrote before its sync failed. The kernel counts such pages as written, so a later sync succeeds
    /// although the disk may not have them. The next process would read them, and append commits that a power loss
    /// destroys with them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    pub fn remove_failed_commit(&self, conn: &Connection) -> Result<()> {
        conn.busy_timeout(self.options.busy_timeout)?;
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

    pub fn is_empty(&self) -> bool {
        self.index.version().wal_pages() == 0
    }

    fn is_full(&self) -> bool {
        self.index.version().wal_pages() >= self.options.wal_pages && !self.index.is_written_back()
    }

    /// Writes the WAL back as far as readers of other processes allow. Fails only if a sync failed.
    pub fn checkpoint(&self, conn: &Connection, pragma: &str) -> Result<()> {
        // Setting a timeout only stores a number and cannot fail.
        let _ = conn.busy_timeout(CHECKPOINT_TIMEOUT);
        let written = self.readers.without_kept(CHECKPOINT_TIMEOUT, || write_back(conn, pragma));
        let _ = conn.busy_timeout(LOCK_POLL);
        written
    }
}
