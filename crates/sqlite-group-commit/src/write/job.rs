//! A job: a write, its result and where to send it.

use rusqlite::Statement;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::WriteConnection;
use crate::history::Effect;
use crate::{Error, Result};

/// Scope of the rollback if a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// The write is a single `INSERT`, `UPDATE` or `DELETE`, which SQLite undoes. A job that fails after its statement has
    /// succeeded gets [`Error::Unknown`]. That is not noticed after other statements, such as `CREATE TABLE`: use
    /// [`Atomicity::Savepoint`] for them.
    Statement,
    /// The write has several statements, and a savepoint, which keeps a copy of every page it changes.
    Savepoint,
    /// The write has several statements that fail only if the disk or the database does. The whole batch is undone, and all
    /// its callers get the error. This saves the savepoint, so the write may change any number of pages.
    Batch,
}

/// A write in two steps, so that it is acknowledged only once it is durable.
pub trait AnyJob: Send {
    /// Runs the write in the batch's transaction. An error undoes the whole batch.
    fn run(&mut self, conn: &WriteConnection<'_>) -> Result<()>;
    fn effect(&self) -> Effect;
    /// Reports the result to the caller once the batch was committed or has failed, and passes on the other jobs.
    fn finish(self: Box<Self>, committed: Result<()>, others: BatchReplies);

    /// The statements that can run this job together with others, if its write is a new row.
    fn insert(&self) -> Option<&'static Insert>;
    /// Binds the row to the parameters of a statement, from `first` on.
    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()>;
    /// Tells that a statement for several jobs added the row.
    fn added(&mut self, rowid: i64);
}

/// The statements that add rows to a table.
#[derive(Debug, PartialEq)]
pub struct Insert {
    /// Adds one row. Its parameters are the columns, as `?`.
    pub one: &'static str,
    /// Adds [`ROWS`](crate::ROWS) rows of the same columns, one after another.
    pub several: &'static str,
}

/// The jobs of a finished batch. Reports their results on drop.
///
/// The writer passes all of them to the first job's caller, which wakes the others from inside the runtime. A wake-up from
/// outside the runtime costs a system call, and on a shared core it preempts the writer.
pub struct BatchReplies {
    pub jobs: Vec<Box<dyn AnyJob>>,
    pub committed: Result<()>,
    pub began: Instant,
}

impl Drop for BatchReplies {
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            job.finish(self.committed.clone(), Self { jobs: Vec::new(), committed: Ok(()), began: self.began });
        }
    }
}

/// What a job writes.
pub trait Write: Send + Sized {
    type Output: Send;
    /// The statements that can run this write together with others, if it is a new row.
    const INSERT: Option<&'static Insert> = None;

    /// Runs the write. The outer error undoes the whole batch.
    fn run(self, conn: &WriteConnection<'_>) -> Result<Result<Self::Output>>;

    /// Binds the row: see [`AnyJob::bind`].
    fn bind(&self, _statement: &mut Statement<'_>, _first: usize) -> rusqlite::Result<()> {
        Ok(())
    }

    /// Returns the result of a row that a statement for several jobs added. `None` if the write is not a row.
    fn added(self, _rowid: i64) -> Option<Self::Output> {
        None
    }
}

/// A write and the channel to its caller.
pub struct Job<W: Write> {
    effect: Effect,
    write: Option<W>,
    result: Option<Result<W::Output>>,
    reply: oneshot::Sender<Reply<W::Output>>,
}

/// The result of a write, and the other jobs of its batch.
pub type Reply<T> = (Result<T>, BatchReplies);

impl<W: Write> Job<W> {
    pub fn new(effect: Effect, write: W) -> (Self, oneshot::Receiver<Reply<W::Output>>) {
        let (reply, result) = oneshot::channel();
        (Self { effect, write: Some(write), result: None, reply }, result)
    }
}

impl<W: Write> AnyJob for Job<W> {
    fn run(&mut self, conn: &WriteConnection<'_>) -> Result<()> {
        let write = self.write.take().expect("a job runs once");
        let result = self.result.insert(write.run(conn)?);
        if !conn.is_autocommit() {
            return Ok(());
        }
        // Later jobs would run outside of the transaction, which a full disk or an I/O error ends, too.
        let ended = || Error::Failed("a job ended the transaction of its batch".into());
        Err(result.as_ref().err().cloned().unwrap_or_else(ended))
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn finish(self: Box<Self>, committed: Result<()>, others: BatchReplies) {
        let Self { result, reply, .. } = *self;
        // If the caller has gone away, the returned value is dropped here, which reports the other results.
        let _ = reply.send((committed.and_then(|()| result.expect("a committed job has run")), others));
    }

    fn insert(&self) -> Option<&'static Insert> {
        W::INSERT
    }

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        self.write.as_ref().expect("a job runs once").bind(statement, first)
    }

    fn added(&mut self, rowid: i64) {
        self.result = self.write.take().and_then(|row| row.added(rowid)).map(Ok);
    }
}

/// A write of the caller's.
pub struct Closure<F> {
    pub atomicity: Atomicity,
    pub write: F,
}

impl<T: Send, F: FnOnce(&WriteConnection<'_>) -> Result<T> + Send> Write for Closure<F> {
    type Output = T;

    fn run(self, conn: &WriteConnection<'_>) -> Result<Result<T>> {
        match self.atomicity {
            Atomicity::Statement => Ok(run_statement(conn, self.write)),
            Atomicity::Savepoint => in_savepoint(conn, self.write),
            Atomicity::Batch => (self.write)(conn).map(Ok),
        }
    }
}

/// Runs `write`, which is a single statement. Fails with [`Error::Unknown`] if `write` fails after its statement.
pub fn run_statement<T>(
    conn: &WriteConnection<'_>,
    write: impl FnOnce(&WriteConnection<'_>) -> Result<T>,
) -> Result<T> {
    let before = conn.total_changes();
    write(conn).map_err(|error| if conn.total_changes() == before { error } else { error.unknown() })
}

/// Runs `write` in a savepoint. The outer error is one of the savepoint itself, which undoes the batch.
fn in_savepoint<T>(
    conn: &WriteConnection<'_>,
    write: impl FnOnce(&WriteConnection<'_>) -> Result<T>,
) -> Result<Result<T>> {
    // `write` may leave a savepoint of its own, which must have another name.
    conn.execute("SAVEPOINT sqlite_group_commit_job", [])?;
    let result = write(conn);
    if !conn.is_autocommit() {
        if result.is_err() {
            conn.execute("ROLLBACK TO sqlite_group_commit_job", [])?;
        }
        conn.execute("RELEASE sqlite_group_commit_job", [])?;
    }
    Ok(result)
}
