//! Group commit: writes that arrive during a commit form the next batch. One thread writes.

use std::cell::RefCell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row};
use tokio::sync::{oneshot, watch};

use super::Options;
use super::files::Files;
use super::readers::Readers;
use super::wal::Wal;
use super::wal_index::WalIndex;
use crate::store::{Result, StoreError, WriterMeter};

/// Maximum number of writes per commit. Bounds the wait of the first write.
const BATCH: usize = 512;

/// Interval at which an idle writer ends unused read transactions and checks the database's files.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

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
pub struct Writer {
    queue: SyncSender<Command>,
    meter: Arc<WriterMeter>,
    state: watch::Receiver<State>,
}

enum Command {
    Write(Box<dyn Job>),
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

/// The connection, as the jobs of a batch use it.
pub struct Batch<'c> {
    conn: &'c Connection,
    statements: RefCell<Vec<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> Batch<'c> {
    fn new(conn: &'c Connection) -> Self {
        Self { conn, statements: RefCell::default() }
    }

    /// Runs a statement that many jobs of a batch share. It is looked up once per batch in the connection's cache, because
    /// a lookup costs a tenth of an insertion.
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

impl Deref for Batch<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}

/// A write in two steps, so that it is acknowledged only once it is durable.
trait Job: Send {
    /// Runs the write in the batch's transaction. An error undoes the whole batch.
    fn run(&mut self, batch: &Batch<'_>) -> Result<()>;
    /// Reports the result to the caller once the batch was committed or has failed, and passes on the other jobs.
    fn finish(self: Box<Self>, committed: Result<()>, others: Unreported);
}

/// The jobs of a finished batch. Reports their results on drop.
///
/// The writer passes all of them to the first job's caller, which wakes the others from inside the runtime. A wake-up from
/// outside the runtime costs a system call, and on a shared core it preempts the writer.
struct Unreported {
    jobs: Vec<Box<dyn Job>>,
    committed: Result<()>,
}

impl Drop for Unreported {
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            job.finish(self.committed.clone(), Self { jobs: Vec::new(), committed: Ok(()) });
        }
    }
}

impl Writer {
    pub fn start(
        conn: Connection,
        readers: Arc<Readers>,
        wal_index: Arc<WalIndex>,
        files: Arc<Files>,
        options: &Options,
    ) -> Result<Self> {
        let (queue, commands) = mpsc::sync_channel(options.queue);
        let (report, state) = watch::channel(State::Running);
        let meter = Arc::new(WriterMeter::default());
        let mut worker = Worker {
            conn,
            meter: Arc::clone(&meter),
            wal: Wal::new(wal_index, Arc::clone(&readers), options),
            readers,
            files,
            report: report.clone(),
            busy_timeout: options.busy_timeout,
            queue: options.queue,
        };
        thread::Builder::new()
            .name("writer".into())
            .spawn(move || {
                let end = catch_unwind(AssertUnwindSafe(|| worker.work(&commands)));
                let state = match end {
                    Ok(Ok(())) => State::Stopped,
                    Ok(Err(fatal)) => State::Failed(fatal),
                    Err(_) => State::Failed("the writer panicked".into()),
                };
                if !matches!(state, State::Stopped) {
                    // The WAL must not be written back into the database.
                    let _ = worker.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                }
                // Closes the connection first, because the caller of `close` may open the database again.
                drop(worker);
                report.send_replace(state);
            })
            .map_err(|error| StoreError::Unavailable(format!("writer thread: {error}")))?;
        Ok(Self { queue, meter, state })
    }

    /// Queues `write` and waits for its commit. It is carried out even if the caller stops waiting.
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&Batch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, result) = oneshot::channel();
        let job = Write { atomicity, write: Some(write), result: None, reply };
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
        match state.wait_for(|state| matches!(state, State::Failed(_))).await.as_deref() {
            Ok(State::Failed(why)) => why.clone(),
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

struct Worker {
    conn: Connection,
    meter: Arc<WriterMeter>,
    readers: Arc<Readers>,
    files: Arc<Files>,
    wal: Wal,
    /// Reports the writer's failure before its jobs report theirs.
    report: watch::Sender<State>,
    busy_timeout: Duration,
    /// Maximum number of queued writes.
    queue: usize,
}

impl Worker {
    /// Runs until it receives `Stop`. An error is fatal to the process.
    fn work(&mut self, commands: &Receiver<Command>) -> std::result::Result<(), String> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match commands.recv_timeout(HOUSEKEEPING) {
                Ok(Command::Write(job)) => batch.push(job),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.readers.release_idle();
                    self.check_files()?;
                    continue;
                }
            }
            let mut stop = gather(commands, &mut batch, BATCH);
            let (size, began) = (batch.len(), Instant::now());
            self.meter.queued.subtract(size);
            let (outcome, fatal) = self.carry_out(&mut batch);
            if outcome.is_err() && began.elapsed() >= self.busy_timeout {
                // Another process is writing. The writes queued meanwhile would have to wait as long again, so they fail
                // with the batch.
                stop |= gather(commands, &mut batch, size + self.queue);
                self.meter.queued.subtract(batch.len() - size);
            }
            self.meter.batch.observe(size as u64);
            self.meter.commit.observe_duration(began.elapsed());
            if let Some(why) = &fatal {
                // A client whose write failed must not find the service ready afterwards.
                self.report.send_replace(State::Failed(why.clone()));
            }
            if let Some(first) = batch.pop() {
                let others = Unreported { jobs: std::mem::take(&mut batch), committed: outcome.clone() };
                first.finish(outcome.clone(), others);
            }
            if let Some(why) = fatal {
                return Err(why);
            }
            self.wal.checkpoint_if_due(&self.conn)?;
            // If threads share a core, the callers can send their next writes first, which makes the next batch larger.
            // A commit is most of a write's cost. With a core of its own, this returns at once.
            thread::yield_now();
            if stop {
                break;
            }
        }
        // SQLite removes the log by its name on close. It must not be the log of another database.
        self.check_files()?;
        self.readers.close();
        Ok(())
    }

    fn check_files(&self) -> std::result::Result<(), String> {
        self.files.check().map_err(|gone| gone.to_string())
    }

    /// Commits a batch. Also returns why the process must end, if it must.
    fn carry_out(&mut self, batch: &mut [Box<dyn Job>]) -> (Result<()>, Option<String>) {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.wal.make_room(&self.conn).and_then(|()| self.commit(batch))));
        let Ok(outcome) = outcome else {
            return (Err(StoreError::Unavailable("the writer panicked".into())), Some("the writer panicked".into()));
        };
        let fatal = match &outcome {
            Err(StoreError::SyncFailed(why)) => {
                Some(format!("a sync failed, so the state of the disk is unknown: {why}"))
            }
            _ if !self.conn.is_autocommit() => Some("a failed batch could not be rolled back".into()),
            // A commit to a file that was removed or replaced is not durable, so it must not be acknowledged.
            _ => match self.files.check() {
                Ok(()) => None,
                Err(gone) => return (Err(gone.clone()), Some(gone.to_string())),
            },
        };
        (outcome, fatal)
    }

    fn commit(&self, batch: &mut [Box<dyn Job>]) -> Result<()> {
        self.run_cached("BEGIN IMMEDIATE")?;
        let shared = Batch::new(&self.conn);
        let committed =
            batch.iter_mut().try_for_each(|job| job.run(&shared)).and_then(|()| Ok(self.run_cached("COMMIT")?));
        if committed.is_err() && !self.conn.is_autocommit() {
            // No write of the batch was acknowledged. The caller checks the connection's state for success.
            let _ = self.run_cached("ROLLBACK");
        }
        committed
    }

    fn run_cached(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}

/// Adds queued jobs to the batch, up to `most` in all. Returns whether to stop after them.
fn gather(commands: &Receiver<Command>, batch: &mut Vec<Box<dyn Job>>, most: usize) -> bool {
    while batch.len() < most {
        match commands.try_recv() {
            Ok(Command::Write(job)) => batch.push(job),
            Ok(Command::Stop) => return true,
            Err(_) => break,
        }
    }
    false
}

struct Write<F, T> {
    atomicity: Atomicity,
    write: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<(Result<T>, Unreported)>,
}

impl<T: Send, F: FnOnce(&Batch<'_>) -> Result<T> + Send> Job for Write<F, T> {
    fn run(&mut self, batch: &Batch<'_>) -> Result<()> {
        let write = self.write.take().expect("a job runs once");
        let result = match self.atomicity {
            Atomicity::Statement => write(batch),
            Atomicity::Savepoint => in_savepoint(batch, write)?,
            Atomicity::Batch => Ok(write(batch)?),
        };
        // A full disk or an I/O error in the job undoes the whole transaction. Later jobs would run outside of it.
        let undone = batch.is_autocommit();
        let cause = result.as_ref().err().cloned();
        self.result = Some(result);
        if undone {
            return Err(cause.unwrap_or_else(|| StoreError::Unavailable("the transaction was rolled back".into())));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<()>, others: Unreported) {
        let Self { result, reply, .. } = *self;
        // If the caller has gone away, the returned value is dropped here, which reports the other results.
        let _ = reply.send((committed.and_then(|()| result.expect("a committed job has run")), others));
    }
}

/// Runs `write` in a savepoint. The outer error is one of the savepoint itself, which undoes the batch.
fn in_savepoint<T>(batch: &Batch<'_>, write: impl FnOnce(&Batch<'_>) -> Result<T>) -> Result<Result<T>> {
    batch.execute("SAVEPOINT job", [])?;
    let result = write(batch);
    if !batch.is_autocommit() {
        if result.is_err() {
            batch.execute("ROLLBACK TO job", [])?;
        }
        batch.execute("RELEASE job", [])?;
    }
    Ok(result)
}
