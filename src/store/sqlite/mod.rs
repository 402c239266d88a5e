//! SQLite: one file, one writer thread, reads on the calling threads.
//!
//! A process opens a database once: closing a second [`Sqlite`] on the same file would drop the first one's locks
//! (see `disk/wal_index.rs`).

pub mod backup;
mod connection;
pub(super) mod disk;
pub(super) mod history;
pub(super) mod migrations;
mod open;
mod read_only;
mod readers;
pub(super) mod rows;
pub(super) mod write;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use crate::store::messages::sqlite_outbox::RelayLease;
pub use disk::atomic_file::{AtomicFile, folder_of};
pub use disk::data_dir::{KEY_FILE, check_access, has_database, is_disk_full, is_in_use, make_folder, outside_stores};
use disk::files::Files;
pub use disk::wal_index::Version;
pub use history::{Effect, Epoch};
use read_only::ReadOnly;
use readers::Readers;
pub use write::connection::WriteConnection;
pub use write::job::Atomicity;
use write::job::{AnyJob, Job, Reply};
use write::queue::WriteQueue;
pub use write::writer::Writer;

use super::{BackupStatus, Disk, Meters, MigrationStatus, Result, StoreError};
use crate::domain::Deployment;

/// Maximum time that a request waits for its write. Twice the time that a write may wait for another process, and less
/// than clients and proxies usually wait.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Location and limits of the database.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Opening fails if the database was created for another deployment.
    pub deployment: Option<Deployment>,
    /// Deployment of a new database if `deployment` is `None`. With `None` here, no database is created.
    pub create: Option<Deployment>,
    /// True if acknowledged writes survive a power loss.
    pub durable: bool,
    /// Maximum number of queued writes.
    pub queue: usize,
    /// Number of connections for reads.
    pub readers: usize,
    /// Maximum time that a write waits for a writing process.
    pub busy_timeout: Duration,
    /// Size of the write-ahead log, in pages of 4 KiB, from which it is written back into the database.
    pub checkpoint_pages: u32,
    /// Size of the write-ahead log, in pages, from which no batch begins. The log grows while readers of other
    /// processes keep it from being written back. With the largest batch (512 messages of maximum length, each with a
    /// stored response: 60 MiB), the file stays below 1 GiB.
    pub wal_pages: u32,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            deployment: None,
            create: Some(Deployment::Production),
            durable: true,
            queue: 4_096,
            readers: thread::available_parallelism().map_or(2, usize::from) + 1,
            busy_timeout: Duration::from_secs(5),
            checkpoint_pages: 4_096,
            wal_pages: 245_000,
        }
    }
}

#[derive(Debug)]
pub struct Sqlite {
    file: PathBuf,
    files: Arc<Files>,
    deployment: Deployment,
    id: String,
    durable: bool,
    writes: Writes,
    readers: Arc<Readers>,
    backups: BackupStatus,
    /// Lock that keeps other processes from replacing the database.
    _in_use: Option<File>,
}

#[derive(Debug)]
enum Writes {
    Accepted(WriteQueue),
    /// The disk is read-only.
    Refused(ReadOnly),
}

impl Sqlite {
    /// Returns all migrations and whether the database has them, without changing it.
    pub fn migration_status(data_dir: &Path) -> Result<Vec<MigrationStatus>> {
        let (_in_use, conn) = open::connect_unmigrated(data_dir)?;
        migrations::status(&conn)
    }

    /// Returns the deployment of a database without changing it. `None` if it has no tables yet.
    pub fn stored_deployment(data_dir: &Path) -> Result<Option<Deployment>> {
        let (_in_use, conn) = open::connect_unmigrated(data_dir)?;
        migrations::refuse_foreign(&conn)?;
        migrations::refuse_other(&conn)?;
        match migrations::is_new(&conn)? {
            true => Ok(None),
            false => open::stored_deployment(&conn, None).map(Some),
        }
    }

    pub const fn deployment(&self) -> Deployment {
        self.deployment
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub const fn is_durable(&self) -> bool {
        self.durable
    }

    pub fn data_dir(&self) -> &Path {
        folder_of(&self.file)
    }

    pub const fn backups(&self) -> &BackupStatus {
        &self.backups
    }

    /// Runs a short read on the calling thread, which may serve requests.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.read(read)
    }

    /// Runs a read like [`Self::read`], and ends its transaction. For callers that may stall before the next read.
    pub fn read_once<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.read_once(read)
    }

    /// Runs a read that may take long on a thread for blocking work.
    pub(in crate::store) async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = Arc::clone(&self.readers);
        let read = tokio::task::spawn_blocking(move || readers.read_once(read));
        read.await.map_err(|error| StoreError::Failed(format!("a read ended early: {error}")))?
    }

    /// Runs a write in a batch with other writes; durable once this returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the disk does not confirm it within 10 s. The write is still carried out once the
    /// disk continues.
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        effect: Effect,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.carry_out(Job::new(atomicity, effect, write)).await
    }

    pub(super) async fn carry_out<T>(&self, job: (impl AnyJob + 'static, oneshot::Receiver<Reply<T>>)) -> Result<T> {
        let now = Instant::now();
        let written = timeout_at(now + WRITE_TIMEOUT, self.queue()?.submit(job, now)).await;
        written.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("the write was not committed within {WRITE_TIMEOUT:?}")))
        })
    }

    /// Runs a write like [`Self::submit`], but without a limit of time. For commands and for writes of many rows.
    pub async fn submit_long<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue()?.submit(Job::new(atomicity, Effect::Any, write), Instant::now()).await
    }

    fn queue(&self) -> Result<&WriteQueue> {
        match &self.writes {
            Writes::Accepted(queue) => Ok(queue),
            Writes::Refused(_) => Err(StoreError::Unavailable("the disk is read-only".into())),
        }
    }

    pub fn version(&self) -> Option<Version> {
        self.readers.version()
    }

    pub fn epoch(&self, version: &Version) -> Option<Epoch> {
        self.readers.history().epoch(version)
    }

    pub fn check(&self) -> Result<()> {
        match &self.writes {
            Writes::Accepted(queue) => queue.check().and_then(|()| self.files.check())?,
            Writes::Refused(_) => self.files.check_names()?,
        }
        self.read(|conn| Ok(conn.prepare_cached("SELECT 1 FROM meta LIMIT 1")?.query_row([], |_| Ok(()))?))
    }

    pub fn disk(&self) -> Option<Disk> {
        let disk = rustix::fs::statvfs(&self.file).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Disk { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
    }

    pub fn meters(&self) -> Meters<'_> {
        let writers = match &self.writes {
            Writes::Accepted(queue) => vec![("all", queue.meter(), queue.meter().queued.get())],
            Writes::Refused(_) => Vec::new(),
        };
        let reads = self.readers.in_use() as i64;
        Meters { writers, readers: self.readers.meter(), reads, connections: Vec::new(), standbys: [0; 2] }
    }

    pub async fn failed(&self) -> String {
        match &self.writes {
            Writes::Accepted(queue) => queue.failed().await,
            Writes::Refused(read_only) => read_only.ended(&self.files).await,
        }
    }

    pub async fn close(&self) {
        match &self.writes {
            Writes::Accepted(queue) => queue.close().await,
            Writes::Refused(_) => self.readers.close(),
        }
    }
}

/// Returns the steps by which SQLite answers a query of a new database that has the relay's index.
#[cfg(test)]
pub(super) fn plan(sql: &str) -> Vec<String> {
    let mut conn = rusqlite::Connection::open_in_memory().unwrap();
    migrations::run(&mut conn, None).unwrap();
    conn.execute_batch(crate::store::messages::sqlite_outbox::INDEX).unwrap();
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    explain.raw_query().mapped(|row| row.get("detail")).collect::<rusqlite::Result<_>>().unwrap()
}
