//! Group commit: writes that arrive during a commit form the next batch. One thread writes.

use std::cell::RefCell;
use std::ops::{ControlFlow, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::Options;
use super::files::Files;
use super::history::Effect;
use super::readers::Readers;
use super::wal::{self, LOCK_POLL, Wal};
use super::wal_index::WalIndex;
use crate::store::{Result, StoreError, WriterMeter};

/// Maximum number of writes per commit. Bounds the wait of the first write.
const BATCH: usize = 512;

/// Interval at which an idle writer ends unused read transactions and checks the database's files.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// Time after which the writer pauses, and the length of the pause, which is longer than [`LOCK_POLL`]. While writes are
/// queued, it releases the lock on the database for so short a time that other processes rarely find it free.
const TURN: Duration = Duration::from_millis(500);
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// Scope of the rollback if a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// The write is a single statement, which SQLite undoes.
    Statement,
    /// The write has several statements, and a savepoint.
    Savepoint,
    /// The write has several statements that fail only if the disk or the database does. The whole batch is undone. This
    /// saves the savepoint, which copies every page it changes.
    Batch,
}

#[derive(Debug)]
pub struct WriteQueue {
    queue: SyncSender<Command>,
    meter: Arc<WriterMeter>,
    state: watch::Receiver<State>,
}

enum Command {
    Write(Box<dyn AnyJob>),
    /// Commits the writes queued before, then stops.
    Stop,
}

#[derive(Clone, Debug)]
enum State {
    Running,
    Stopped,
    /// The thread has ended, and this process can no longer rely on the database.
    Failed(String),
}

/// The writer's connection, with the statements that jobs repeat.
pub struct WriteConnection<'c> {
    conn: &'c Connection,
    statements: RefCell<Vec<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> WriteConnection<'c> {
    pub fn new(conn: &'c Connection) -> Self {
        Self { conn, statements: RefCell::default() }
    }

    /// Runs a statement that jobs repeat. It stays prepared for as long as the writer runs, because a lookup in the
    /// connection's cache costs a tenth of an insertion.
    pub fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepared(sql, |statement| statement.execute(params))
    }

    /// Runs a statement like [`Self::execute`], and reads its first row. `None` if it returns no row.
    pub fn find<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.prepared(sql, |statement| statement.query_row(params, read).optional())
    }

    fn prepared<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut CachedStatement<'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut statements = self.statements.borrow_mut();
        let position = match statements.iter().position(|(known, _)| *known == sql) {
            Some(position) => position,
            None => {
                statements.push((sql, self.conn.prepare_cached(sql)?));
                statements.len() - 1
            }
        };
        run(&mut statements[position].1)
    }
}

impl Deref for WriteConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}

/// A write in two steps, so that it is acknowledged only once it is durable.
trait AnyJob: Send {
    /// Runs the write in the batch's transaction. An error undoes the whole batch.
    fn run(&mut self, conn: &WriteConnection<'_>) -> Result<()>;
    fn effect(&self) -> Effect;
    /// Reports the result to the caller once the batch was committed or has failed, and passes on the other jobs.
    fn finish(self: Box<Self>, committed: Result<()>, others: Unreported);
}

/// The jobs of a finished batch. Reports their results on drop.
///
/// The writer passes all of them to the first job's caller, which wakes the others from inside the runtime. A wake-up from
/// outside the runtime costs a system call, and on a conn core it preempts the writer.
struct Unreported {
    jobs: Vec<Box<dyn AnyJob>>,
    committed: Result<()>,
}

impl Drop for Unreported {
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            job.finish(self.committed.clone(), Self { jobs: Vec::new(), committed: Ok(()) });
        }
    }
}

impl WriteQueue {
    /// Returns the queue, and the writer that carries out its writes.
    pub fn new(
        readers: Arc<Readers>,
        wal_index: Arc<WalIndex>,
        files: Arc<Files>,
        options: &Options,
    ) -> (Self, Writer) {
        let (queue, commands) = mpsc::sync_channel(options.queue);
        let (report, state) = watch::channel(State::Running);
        let meter = Arc::new(WriterMeter::default());
        let writer = Writer {
            commands,
            meter: Arc::clone(&meter),
            wal: Wal::new(wal_index, Arc::clone(&readers), options),
            readers,
            files,
            report,
            busy_timeout: options.busy_timeout,
            queue: options.queue,
            turn_began: Instant::now(),
        };
        (Self { queue, meter, state }, writer)
    }

    /// Queues `write` and waits for its commit. It is carried out even if the caller stops waiting.
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        effect: Effect,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, result) = oneshot::channel();
        let job = Job { atomicity, effect, write: Some(write), result: None, reply };
        self.queue.try_send(Command::Write(Box::new(job))).map_err(|rejected| {
            StoreError::Unavailable(match rejected {
                TrySendError::Full(_) => {
                    self.meter.refused.increment();
                    "the write queue is full".into()
                }
                TrySendError::Disconnected(_) => "the store is closed".into(),
            })
        })?;
        self.meter.queued.increment();
        let (result, others) =
            result.await.map_err(|_| StoreError::Unavailable("the store closed before the commit".into()))?;
        drop(others);
        result
    }

    pub fn meter(&self) -> &WriterMeter {
        &self.meter
    }

    pub fn check(&self) -> Result<()> {
        match &*self.state.borrow() {
            State::Running => Ok(()),
            State::Stopped => Err(StoreError::Unavailable("the store is closed".into())),
            State::Failed(why) => Err(StoreError::Unavailable(why.clone())),
        }
    }

    /// Waits for a failure that must end the process, and returns its cause.
    pub async fn failed(&self) -> String {
        let mut state = self.state.clone();
        let failed = state.wait_for(|state| matches!(state, State::Failed(_))).await.map(|state| state.clone());
        match failed {
            Ok(State::Failed(why)) => why,
            _ => std::future::pending().await,
        }
    }

    pub async fn close(&self) {
        while let Err(TrySendError::Full(_)) = self.queue.try_send(Command::Stop) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // An error means that the thread has already ended.
        let _ = self.state.clone().wait_for(|state| !matches!(state, State::Running)).await;
    }
}

/// Carries out the queued writes, batch by batch, on a thread of its own or driven by a simulation.
pub struct Writer {
    commands: Receiver<Command>,
    meter: Arc<WriterMeter>,
    readers: Arc<Readers>,
    files: Arc<Files>,
    wal: Wal,
    /// Reports the writer's failure before its jobs report theirs.
    report: watch::Sender<State>,
    busy_timeout: Duration,
    /// Maximum number of queued writes.
    queue: usize,
    /// The end of the last wait for another process, or of the last pause.
    turn_began: Instant,
}

impl Writer {
    /// Starts the thread that writes.
    pub fn start(mut self, conn: Connection) -> Result<()> {
        let work = move || {
            let end = catch_unwind(AssertUnwindSafe(|| self.run(&conn)));
            self.end(conn, end.unwrap_or_else(|_| Err("the writer panicked".into())));
        };
        let started = thread::Builder::new().name("writer".into()).spawn(work);
        started.map(drop).map_err(|error| StoreError::Unavailable(format!("writer thread: {error}")))
    }

    /// Runs until it receives `Stop`. An error is fatal to the process.
    fn run(&mut self, conn: &Connection) -> std::result::Result<(), String> {
        let conn = WriteConnection::new(conn);
        while self.step(&conn, HOUSEKEEPING)?.is_continue() {
            if self.turn_began.elapsed() < TURN {
                // If threads share a core, the callers can send their next writes first, which makes the next batch
                // larger. A commit is most of a write's cost. With a core of its own, this returns at once.
                thread::yield_now();
            } else {
                thread::sleep(TURN_PAUSE);
                self.turn_began = Instant::now();
            }
        }
        Ok(())
    }

    /// Commits the queued writes as one batch. Waits for the first one, and does the housekeeping if none comes within
    /// `wait`. Breaks at `Stop`. An error is fatal to the process.
    pub fn step(&mut self, conn: &WriteConnection<'_>, wait: Duration) -> std::result::Result<ControlFlow<()>, String> {
        match self.commands.recv_timeout(wait) {
            Ok(Command::Write(first)) => self.write(conn, first),
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => self.stop(),
            Err(RecvTimeoutError::Timeout) => {
                self.readers.release_idle();
                self.check_files()?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn write(
        &mut self,
        conn: &WriteConnection<'_>,
        first: Box<dyn AnyJob>,
    ) -> std::result::Result<ControlFlow<()>, String> {
        let mut batch = vec![first];
        let mut stop = gather(&self.commands, &mut batch, BATCH);
        let (size, began) = (batch.len(), Instant::now());
        self.meter.queued.subtract(size);
        let (outcome, fatal) = self.carry_out(conn, &mut batch);
        if outcome.is_err() && began.elapsed() >= self.busy_timeout {
            // Another process is writing. The writes queued meanwhile would have to wait as long again, so they fail
            // with the batch.
            stop |= gather(&self.commands, &mut batch, size + self.queue);
            self.meter.queued.subtract(batch.len() - size);
        }
        self.meter.batch.observe(size as u64);
        self.meter.commit.observe_duration(began.elapsed());
        if let Some(why) = &fatal {
            // A client whose write failed must not find the service ready afterwards.
            self.report.send_replace(State::Failed(why.clone()));
        }
        if let Some(first) = batch.pop() {
            let others = Unreported { jobs: batch, committed: outcome.clone() };
            first.finish(outcome, others);
        }
        if let Some(why) = fatal {
            return Err(why);
        }
        self.wal.checkpoint_if_due(conn).inspect_err(|_| self.files.mark_failed_sync())?;
        if stop { self.stop() } else { Ok(ControlFlow::Continue(())) }
    }

    fn stop(&self) -> std::result::Result<ControlFlow<()>, String> {
        // SQLite removes the log by its name on close. It must not be the log of another database.
        self.check_files()?;
        self.readers.close();
        Ok(ControlFlow::Break(()))
    }

    /// Closes the database after the last step, and reports how it ended.
    pub fn end(self, conn: Connection, end: std::result::Result<(), String>) {
        let state = match end {
            Ok(()) => State::Stopped,
            Err(fatal) => {
                wal::keep_log(&conn);
                State::Failed(fatal)
            }
        };
        let report = self.report.clone();
        // Closes the connection first, because the caller of `close` may open the database again.
        drop((conn, self));
        report.send_replace(state);
    }

    fn check_files(&self) -> std::result::Result<(), String> {
        self.files.check().map_err(|gone| gone.to_string())
    }

    /// Commits a batch. Also returns why the process must end, if it must.
    fn carry_out(&mut self, conn: &WriteConnection<'_>, batch: &mut [Box<dyn AnyJob>]) -> (Result<()>, Option<String>) {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.wal.make_room(conn).and_then(|()| self.commit(conn, batch))));
        let Ok(outcome) = outcome else {
            return (Err(StoreError::Unavailable("the writer panicked".into())), Some("the writer panicked".into()));
        };
        let fatal = match &outcome {
            Err(StoreError::SyncFailed(why)) => {
                self.files.mark_failed_sync();
                let removed = self.files.check_names().and_then(|()| self.wal.remove_failed_commit(conn));
                if let Err(error) = removed {
                    tracing::error!(%error, "failed commit not removed from the write-ahead log");
                }
                Some(format!("a sync failed, so the state of the disk is unknown: {why}"))
            }
            _ if !conn.is_autocommit() => Some("a failed batch could not be rolled back".into()),
            // A commit to a file that was removed or replaced is not durable, so it must not be acknowledged.
            _ => match self.files.check() {
                Ok(()) => None,
                Err(gone) => return (Err(gone.clone()), Some(gone.to_string())),
            },
        };
        (outcome, fatal)
    }

    /// Begins a transaction that can write. Waits while other processes write.
    ///
    /// SQLite's own wait would sleep for up to 100 ms at a time, and find the lock taken each time if another process writes
    /// without a pause.
    fn begin(&mut self, conn: &WriteConnection<'_>) -> Result<()> {
        let began = Instant::now();
        // Limited by number, because time stands still in a simulation, and by time, because a poll takes longer on a busy
        // machine.
        for _ in 1..self.busy_timeout.as_millis() / LOCK_POLL.as_millis() {
            match conn.execute("BEGIN IMMEDIATE", []) {
                Err(error) if is_busy(&error) && began.elapsed() < self.busy_timeout => {
                    self.turn_began = Instant::now();
                }
                begun => return Ok(begun.map(drop)?),
            }
        }
        Ok(conn.execute("BEGIN IMMEDIATE", []).map(drop)?)
    }

    fn commit(&mut self, conn: &WriteConnection<'_>, batch: &mut [Box<dyn AnyJob>]) -> Result<()> {
        self.begin(conn)?;
        let before = self.readers.current();
        let run = batch.iter_mut().try_for_each(|job| job.run(conn));
        // After another process's failed sync, the kernel may give us older pages. Few commits can be based on them, because
        // that process marks the failure at once.
        let checked = run.and_then(|()| self.files.check_syncs());
        let committed = checked.and_then(|()| Ok(conn.execute("COMMIT", []).map(drop)?));
        if committed.is_err() && !conn.is_autocommit() {
            // No write of the batch was acknowledged. The caller checks the connection's state for success.
            let _ = conn.execute("ROLLBACK", []);
        }
        if committed.is_ok() {
            let effect = batch.iter().map(|job| job.effect()).max().unwrap_or(Effect::Any);
            self.readers.history().record(before, self.readers.current(), effect);
        }
        committed
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Adds queued jobs to the batch, up to `most` in all. Returns whether to stop after them.
fn gather(commands: &Receiver<Command>, batch: &mut Vec<Box<dyn AnyJob>>, most: usize) -> bool {
    while batch.len() < most {
        match commands.try_recv() {
            Ok(Command::Write(job)) => batch.push(job),
            Ok(Command::Stop) => return true,
            Err(_) => break,
        }
    }
    false
}

struct Job<F, T> {
    atomicity: Atomicity,
    effect: Effect,
    write: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<(Result<T>, Unreported)>,
}

impl<T: Send, F: FnOnce(&WriteConnection<'_>) -> Result<T> + Send> AnyJob for Job<F, T> {
    fn run(&mut self, conn: &WriteConnection<'_>) -> Result<()> {
        let write = self.write.take().expect("a job runs once");
        let result = match self.atomicity {
            Atomicity::Statement => write(conn),
            Atomicity::Savepoint => in_savepoint(conn, write)?,
            Atomicity::Batch => Ok(write(conn)?),
        };
        // A full disk or an I/O error in the job undoes the whole transaction. Later jobs would run outside of it.
        let undone = conn.is_autocommit();
        let cause = result.as_ref().err().cloned();
        self.result = Some(result);
        if undone {
            return Err(cause.unwrap_or_else(|| StoreError::Unavailable("the transaction was rolled back".into())));
        }
        Ok(())
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn finish(self: Box<Self>, committed: Result<()>, others: Unreported) {
        let Self { result, reply, .. } = *self;
        // If the caller has gone away, the returned value is dropped here, which reports the other results.
        let _ = reply.send((committed.and_then(|()| result.expect("a committed job has run")), others));
    }
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
