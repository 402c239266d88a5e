//! An open database: one file, one writer thread, reads on the calling threads.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::disk::files::Files;
use crate::disk::folder::Folder;
use crate::disk::wal_index::Version;
use crate::history::{Effect, Epoch};
use crate::read_only::ReadOnly;
use crate::readers::Readers;
use crate::write::connection::WriteConnection;
use crate::write::job::{AnyJob, Atomicity, Closure, Job, Reply};
use crate::write::new_row::{NewRow, Row};
use crate::write::queue::WriteQueue;
use crate::{Error, Result};

/// An open database. Share it among tasks, in an `Arc`.
///
/// A process opens a database once, and gets an error if it tries again: closing a file drops all locks on it, because POSIX
/// locks belong to the process. For the same reason, nothing but SQLite may open and close the database's files in the process.
///
/// Dropping it stops the writer once the queued writes are committed. [`Self::close`] also waits for that: to open the files
/// again, or to let others replace them, close the database, and then drop it.
#[derive(Debug)]
pub struct Database {
    pub(crate) files: Arc<Files>,
    pub(crate) writes: Writes,
    pub(crate) readers: Arc<Readers>,
}

#[derive(Debug)]
pub enum Writes {
    Accepted(WriteQueue),
    /// The disk is read-only.
    Refused(Box<ReadOnly>),
}

impl Database {
    /// Returns the folder that was opened.
    pub fn folder(&self) -> &Folder {
        &self.files.folder
    }

    /// Runs a short read on the calling thread, which may be one that serves requests. It sees every write that any process
    /// acknowledged before. `read` must neither write nor end the transaction; it may use the connection's cache of
    /// statements.
    ///
    /// # Errors
    ///
    /// Those of `read`, which is [`Error::Failed`] if it writes. [`Error::Unavailable`] if the database is closed or the disk
    /// fails.
    #[inline]
    pub fn read<T, E: From<Error>>(&self, read: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        self.readers.read(true, read)
    }

    /// Runs a read like [`Self::read`], and ends its transaction at once. For callers that may stall before the next read:
    /// the write-ahead log cannot be written back while a transaction is open.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`].
    pub fn read_once<T, E: From<Error>>(&self, read: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        self.readers.read(false, read)
    }

    /// Runs a read that may take long on a thread for blocking work.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`]. [`Error::Failed`] if `read` panics.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn read_long<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let readers = Arc::clone(&self.readers);
        let read = tokio::task::spawn_blocking(move || readers.read(false, read));
        read.await.map_err(|error| Error::Failed(format!("a read ended early: {error}")))?
    }

    /// Runs a write in a batch with other writes, on the writer's thread. It is durable once this returns, and every later
    /// read sees it. It is carried out even if the caller stops waiting. `write` runs once, and must not end the
    /// transaction.
    ///
    /// # Errors
    ///
    /// Those of `write`, which then has no effect. [`Error::Unavailable`] if the queue is full. [`Error::Unknown`] if the
    /// disk does not confirm it within [`Options::write_timeout`](crate::Options); the write is still carried out once the disk continues.
    /// [`Error::is_not_applied`] tells if a retry cannot apply the write twice.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time. A panic of `write` ends the writer: see [`Self::failed`].
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        effect: Effect,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.carry_out(Job::new(effect, Closure { atomicity, write })).await
    }

    /// Adds a row like [`Self::submit`]. Rows that are queued together share a statement.
    ///
    /// # Errors
    ///
    /// Those of [`Self::submit`].
    pub async fn add_row<R: NewRow>(&self, row: R) -> Result<R::Added> {
        self.carry_out(Job::new(R::EFFECT, Row(row))).await
    }

    async fn carry_out<T>(&self, job: (impl AnyJob + 'static, oneshot::Receiver<Reply<T>>)) -> Result<T> {
        let (queue, now) = (self.queue()?, Instant::now());
        let written = timeout_at(now + queue.timeout, queue.submit(job, now)).await;
        written
            .unwrap_or_else(|_| Err(Error::Unknown(format!("the write was not committed within {:?}", queue.timeout))))
    }

    /// Runs a write like [`Self::submit`], but without a limit of time. For commands and for writes of many rows, which other
    /// writes wait for. Its effect is [`Effect::Any`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::submit`].
    pub async fn submit_long<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue()?.submit(Job::new(Effect::Any, Closure { atomicity, write }), Instant::now()).await
    }

    fn queue(&self) -> Result<&WriteQueue> {
        match &self.writes {
            Writes::Accepted(queue) => Ok(queue),
            Writes::Refused(_) => Err(Error::Unavailable("the disk is read-only".into())),
        }
    }

    /// Returns the version that a read would see now. Two equal versions mean that no process has committed in between.
    /// Reads 48 bytes of memory. `None` if the database is closed.
    #[inline]
    pub fn version(&self) -> Option<Version> {
        self.readers.version()
    }

    /// Returns the epoch of a version, by which a cache tells if commits since may have changed what it has. `None` if the
    /// version is not the last one of this process.
    #[inline]
    pub fn epoch(&self, version: &Version) -> Option<Epoch> {
        self.readers.history.epoch(version)
    }

    /// Checks that the writer runs and the files are there, without reading or writing them. Takes about 10 µs. A full disk,
    /// which later writes notice, passes.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the writer has ended, a write has not ended within [`Options::write_timeout`](crate::Options), a sync of any process has failed, or a
    /// file was removed, replaced or moved. On a read-only disk, only the files are checked.
    pub fn check(&self) -> Result<()> {
        match &self.writes {
            Writes::Accepted(queue) => queue.check().and_then(|()| self.files.check()),
            Writes::Refused(_) => self.files.check_names(),
        }
    }

    /// Returns the number of writes that wait for a batch. `None` if the disk is read-only.
    pub fn queued(&self) -> Option<usize> {
        self.queue().ok().map(WriteQueue::queued)
    }

    /// Returns the number of reads that run now.
    pub fn reads(&self) -> usize {
        self.readers.in_use()
    }

    /// Waits for a failure that must end the process, and returns its cause: a sync failed, the writer panicked, or a file is
    /// gone. On a read-only disk, also waits until the disk accepts writes again, which needs a new start.
    pub async fn failed(&self) -> String {
        match &self.writes {
            Writes::Accepted(queue) => queue.failed().await,
            Writes::Refused(read_only) => read_only.ended(&self.files).await,
        }
    }

    /// Commits the queued writes, writes the log back and closes the files. Later calls fail.
    pub async fn close(&self) {
        match &self.writes {
            Writes::Accepted(queue) => queue.close().await,
            Writes::Refused(_) => self.readers.close(),
        }
    }
}
