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
    /// The write is a single statement, which SQLite undoes. The job must not fail after its statement has succeeded.
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
    fn insert(&self) -> Option<&'static Insert> {
        None
    }
    /// Binds the row to the parameters of a statement, from `first` on.
    fn bind(&self, _statement: &mut Statement<'_>, _first: usize) -> rusqlite::Result<()> {
        Ok(())
    }
    /// Tells that a statement for several jobs added the row.
    fn added(&mut self, _rowid: i64) {}
}

/// The statements that add rows to a table.
#[derive(Debug, PartialEq)]
pub struct Insert {
    /// Adds one row. Its parameters are the columns, as `?`.
    pub one: &'static str,
    /// Adds [`ROWS`](crate::ROWS) rows of the same columns, one after another.
    pub several: &'static str,
    /// Number of parameters of a row.
    pub columns: usize,
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

/// A write and the channel to its caller.
pub struct Job<F, T> {
    atomicity: Atomicity,
    effect: Effect,
    write: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Reply<T>>,
}

/// The result of a write, and the other jobs of its batch.
pub type Reply<T> = (Result<T>, BatchReplies);

impl<F, T> Job<F, T> {
    pub fn new(atomicity: Atomicity, effect: Effect, write: F) -> (Self, oneshot::Receiver<Reply<T>>) {
        let (reply, result) = oneshot::channel();
        (Self { atomicity, effect, write: Some(write), result: None, reply }, result)
    }
}

impl<T: Send, F: FnOnce(&WriteConnection<'_>) -> Result<T> + Send> AnyJob for Job<F, T> {
    fn run(&mut self, conn: &WriteConnection<'_>) -> Result<()> {
        let write = self.write.take().expect("a job runs once");
        let result = match self.atomicity {
            Atomicity::Statement => write(conn),
            Atomicity::Savepoint => in_savepoint(conn, write)?,
            Atomicity::Batch => Ok(write(conn)?),
        };
        undone(conn, self.result.insert(result).as_ref().err())
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn finish(self: Box<Self>, committed: Result<()>, others: BatchReplies) {
        let Self { result, reply, .. } = *self;
        // If the caller has gone away, the returned value is dropped here, which reports the other results.
        let _ = reply.send((committed.and_then(|()| result.expect("a committed job has run")), others));
    }
}

/// Fails if a job has undone the whole transaction, as a full disk or an I/O error does: later jobs would run outside of it.
pub fn undone(conn: &WriteConnection<'_>, cause: Option<&Error>) -> Result<()> {
    if !conn.is_autocommit() {
        return Ok(());
    }
    Err(cause.cloned().unwrap_or_else(|| Error::Unavailable("the transaction was rolled back".into())))
}

/// Runs `write` in a savepoint. The outer error is one of the savepoint itself, which undoes the batch.
fn in_savepoint<T>(
    conn: &WriteConnection<'_>,
    write: impl FnOnce(&WriteConnection<'_>) -> Result<T>,
) -> Result<Result<T>> {
    conn.execute("SAVEPOINT job", [])?;
    let result = write(conn);
    if !conn.is_autocommit() {
        if result.is_err() {
            conn.execute("ROLLBACK TO job", [])?;
        }
        conn.execute("RELEASE job", [])?;
    }
    Ok(result)
}
