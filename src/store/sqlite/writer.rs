//! The one writer: what waits while a commit is on its way to the disk is the next commit.

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

/// How many writes share a commit at most: bounds how long the first of them waits.
const BATCH: usize = 512;

/// Interval at which an idle writer ends unused read transactions and checks the database's files.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// What must not be half done when a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// One statement, which SQLite undoes by itself.
    Statement,
    /// Several: they get a savepoint.
    Savepoint,
    /// Several that fail only as the disk or the database does. Where one fails, the whole batch is undone: that spares
    /// the savepoint, which keeps a copy of every page it changes.
    Batch,
}

#[derive(Debug)]
pub struct Writer {
    queue: SyncSender<Order>,
    meter: Arc<WriterMeter>,
    state: watch::Receiver<State>,
}

enum Order {
    Write(Box<dyn Job>),
    /// Finish what was queued before, then end.
    Stop,
}

#[derive(Clone, Debug)]
enum State {
    Running,
    Stopped,
    /// The thread is gone and the database can't be trusted to this process any more.
    Failed(String),
}

/// The connection, as the jobs of one batch see it.
pub struct Batch<'c> {
    conn: &'c Connection,
    statements: RefCell<Vec<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> Batch<'c> {
    fn new(conn: &'c Connection) -> Self {
        Self { conn, statements: RefCell::default() }
    }

    /// Runs a statement that many jobs of a batch have in common: the connection's cache, whose search costs a tenth of
    /// an insertion, is asked for it once.
    pub fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepared(sql, |statement| statement.execute(params))
    }

    /// The same for one that returns a row, or none.
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

/// A write in two steps, so that nothing is answered before it is durable.
trait Job: Send {
    /// Does the work, inside the batch's transaction. An error is one that the whole batch must be undone for.
    fn run(&mut self, batch: &Batch<'_>) -> Result<()>;
    /// Answers, once the batch was committed or has failed as a whole, and hands the others on.
    fn finish(self: Box<Self>, committed: Result<()>, others: Unanswered);
}

/// The jobs of a batch that is over. Dropping it answers them.
///
/// The writer gives them all to the first one's waiter. That wakes the runtime once for a batch, and the others are woken
/// from inside it; each wake-up from outside costs a system call, and on a shared core it stops the writer halfway.
struct Unanswered {
    jobs: Vec<Box<dyn Job>>,
    committed: Result<()>,
}

impl Drop for Unanswered {
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
        let (queue, orders) = mpsc::sync_channel(options.queue);
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
                let end = catch_unwind(AssertUnwindSafe(|| worker.work(&orders)));
                let state = match end {
                    Ok(Ok(())) => State::Stopped,
                    Ok(Err(fatal)) => State::Failed(fatal),
                    Err(_) => State::Failed("the writer panicked".into()),
                };
                if !matches!(state, State::Stopped) {
                    // What lies in the WAL must not be written back over what can be trusted.
                    let _ = worker.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                }
                // The connection closes first: who waits for the end may open the database again.
                drop(worker);
                report.send_replace(state);
            })
            .map_err(|error| StoreError::Unavailable(format!("writer thread: {error}")))?;
        Ok(Self { queue, meter, state })
    }

    /// Queues `write` and waits for its commit. It is carried out even when the caller stops waiting.
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&Batch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job = Write { atomicity, write: Some(write), result: None, reply };
        self.queue.try_send(Order::Write(Box::new(job))).map_err(|refused| {
            StoreError::Unavailable(match refused {
                TrySendError::Full(_) => {
                    self.meter.refused.increment();
                    "the write queue is full".into()
                }
                TrySendError::Disconnected(_) => "the store is closed".into(),
            })
        })?;
        self.meter.queued.increment();
        let (result, others) =
            answer.await.map_err(|_| StoreError::Unavailable("the store closed before the commit".into()))?;
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

    /// Waits for a failure after which the process must end; for ever where none comes.
    pub async fn failed(&self) -> String {
        let mut state = self.state.clone();
        match state.wait_for(|state| matches!(state, State::Failed(_))).await.as_deref() {
            Ok(State::Failed(why)) => why.clone(),
            _ => std::future::pending().await,
        }
    }

    pub async fn close(&self) {
        while let Err(TrySendError::Full(_)) = self.queue.try_send(Order::Stop) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // An error means that the thread is gone already.
        let _ = self.state.clone().wait_for(|state| !matches!(state, State::Running)).await;
    }
}

struct Worker {
    conn: Connection,
    meter: Arc<WriterMeter>,
    readers: Arc<Readers>,
    files: Arc<Files>,
    wal: Wal,
    /// Tells of the end, before those who wait are told of theirs.
    report: watch::Sender<State>,
    busy_timeout: Duration,
    /// How many writes may wait.
    queue: usize,
}

impl Worker {
    /// Works until told to stop; an error is fatal to the process.
    fn work(&mut self, orders: &Receiver<Order>) -> std::result::Result<(), String> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match orders.recv_timeout(HOUSEKEEPING) {
                Ok(Order::Write(job)) => batch.push(job),
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.readers.release_idle();
                    self.check_files()?;
                    continue;
                }
            }
            let mut stop = gather(orders, &mut batch, BATCH);
            let (size, began) = (batch.len(), Instant::now());
            self.meter.queued.subtract(size);
            let (outcome, fatal) = self.carry_out(&mut batch);
            if outcome.is_err() && began.elapsed() >= self.busy_timeout {
                // Another process is writing. Those who came meanwhile would have to wait as long once more, and those
                // behind them even longer: they are refused with the others.
                stop |= gather(orders, &mut batch, size + self.queue);
                self.meter.queued.subtract(batch.len() - size);
            }
            self.meter.batch.observe(size as u64);
            self.meter.commit.observe_duration(began.elapsed());
            if let Some(why) = &fatal {
                // Nobody who was told that a write failed may still be told that the service is ready.
                self.report.send_replace(State::Failed(why.clone()));
            }
            if let Some(first) = batch.pop() {
                let others = Unanswered { jobs: std::mem::take(&mut batch), committed: outcome.clone() };
                first.finish(outcome.clone(), others);
            }
            if let Some(why) = fatal {
                return Err(why);
            }
            self.wal.checkpoint_if_due(&self.conn)?;
            // Where threads share a core, those who were answered get to ask again first: the next batch is larger,
            // and a commit is most of what a write costs. Elsewhere this returns at once.
            thread::yield_now();
            if stop {
                break;
            }
        }
        // On closing, SQLite removes the log by its name. That must not be the log of another database.
        self.check_files()?;
        self.readers.close();
        Ok(())
    }

    fn check_files(&self) -> std::result::Result<(), String> {
        self.files.check().map_err(|gone| gone.to_string())
    }

    /// Commits a batch; says also why the process must end, where it must.
    fn carry_out(&mut self, batch: &mut [Box<dyn Job>]) -> (Result<()>, Option<String>) {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.wal.make_room(&self.conn).and_then(|()| self.commit(batch))));
        let Ok(outcome) = outcome else {
            return (Err(StoreError::Unavailable("the writer panicked".into())), Some("the writer panicked".into()));
        };
        let fatal = match &outcome {
            Err(StoreError::SyncFailed(why)) => {
                Some(format!("a sync failed, so what the disk holds is unknown: {why}"))
            }
            _ if !self.conn.is_autocommit() => Some("a batch that failed could not be undone".into()),
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
            // Nothing of the batch was acknowledged. Whether this succeeds shows in the connection's state.
            let _ = self.run_cached("ROLLBACK");
        }
        committed
    }

    fn run_cached(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}

/// Takes what waits, up to so many in all; whether to stop after them.
fn gather(orders: &Receiver<Order>, batch: &mut Vec<Box<dyn Job>>, most: usize) -> bool {
    while batch.len() < most {
        match orders.try_recv() {
            Ok(Order::Write(job)) => batch.push(job),
            Ok(Order::Stop) => return true,
            Err(_) => break,
        }
    }
    false
}

struct Write<F, T> {
    atomicity: Atomicity,
    write: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<(Result<T>, Unanswered)>,
}

impl<T: Send, F: FnOnce(&Batch<'_>) -> Result<T> + Send> Job for Write<F, T> {
    fn run(&mut self, batch: &Batch<'_>) -> Result<()> {
        let write = self.write.take().expect("a job runs once");
        let result = match self.atomicity {
            Atomicity::Statement => write(batch),
            Atomicity::Savepoint => in_savepoint(batch, write)?,
            Atomicity::Batch => Ok(write(batch)?),
        };
        // A full disk or an I/O error inside the job undoes the whole transaction: what came after would run alone.
        let undone = batch.is_autocommit();
        let cause = result.as_ref().err().cloned();
        self.result = Some(result);
        if undone {
            return Err(cause.unwrap_or_else(|| StoreError::Unavailable("the transaction was undone".into())));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<()>, others: Unanswered) {
        let Self { result, reply, .. } = *self;
        // Who asked may have gone away; the work is done all the same, and the others are answered right here.
        let _ = reply.send((committed.and_then(|()| result.expect("a committed job has run")), others));
    }
}

/// The outer error is one of the savepoint itself, after which the batch can't be trusted.
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
