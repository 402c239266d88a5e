//! Group commit: writes that arrive during a commit form the next batch. One thread writes.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use tokio::time::Instant;

use super::connection::WriteConnection;
use super::job::{AnyJob, BatchReplies};
use super::new_row;
use super::queue::{Command, Consumer, State, WriteQueue};
use super::wal::{LOCK_POLL, Wal};
use crate::disk::files::Files;
use crate::disk::generation::Generations;
use crate::disk::wal_index::{LogEnd, WalIndex};
use crate::history::Effect;
use crate::readers::Readers;
use crate::{Error, Options, Result};

/// Maximum number of writes per commit. Bounds the wait of the first write.
const BATCH: usize = 512;

/// Interval at which an idle writer ends unused read transactions and checks the database's files.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// Time after which the writer pauses, and the length of the pause, which is longer than [`LOCK_POLL`]. While writes are
/// queued, it releases the lock on the database for so short a time that other processes rarely find it free.
const TURN: Duration = Duration::from_millis(500);
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// Carries out the queued writes, batch by batch, on a thread of its own or driven by a simulation.
pub struct Writer {
    queue: Consumer,
    readers: Arc<Readers>,
    files: Arc<Files>,
    /// `None` if the database is not durable, or if processes of an earlier version use it, too.
    generations: Option<Arc<Generations>>,
    /// The last commit that is recorded, if it is one of the log.
    recorded: Option<LogEnd>,
    /// When the record was last read: another process that is killed may have left an outdated one.
    record_read: Instant,
    wal: Wal,
    options: Options,
    /// The end of the last wait for another process, or of the last pause.
    turn_began: Instant,
}

impl Writer {
    /// Returns the queue and the writer that carries out its writes.
    pub fn new(
        readers: Arc<Readers>,
        wal_index: Arc<WalIndex>,
        files: Arc<Files>,
        generations: Option<Arc<Generations>>,
        options: &Options,
    ) -> (WriteQueue, Self) {
        let options = Options { queue: options.queue.max(1), ..options.clone() };
        let (writes, queue) = WriteQueue::new(&options);
        let wal = Wal::new(wal_index, Arc::clone(&readers), &files.folder, options.clone());
        let (turn_began, record_read, recorded) = (Instant::now(), Instant::now(), None);
        (writes, Self { queue, readers, files, generations, recorded, record_read, wal, options, turn_began })
    }

    /// Starts the thread that writes.
    pub fn start(mut self, conn: Connection) -> Result<()> {
        let work = move || {
            let end = catch_unwind(AssertUnwindSafe(|| self.run(&conn)));
            self.end(conn, end.unwrap_or_else(|_| Err("the writer panicked".into())));
        };
        let started = thread::Builder::new().name("writer".into()).spawn(work);
        started.map(drop).map_err(|error| Error::Unavailable(format!("writer thread: {error}")))
    }

    /// Runs until it receives `Stop`. An error is fatal to the process.
    fn run(&mut self, conn: &Connection) -> Result<(), String> {
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
    pub fn step(&mut self, conn: &WriteConnection<'_>, wait: Duration) -> Result<ControlFlow<()>, String> {
        match self.queue.commands.recv_timeout(wait) {
            Ok(Command::Write(first)) => {
                *self.queue.busy_since.lock() = Some(Instant::now());
                let written = self.write(conn, first);
                *self.queue.busy_since.lock() = None;
                written
            }
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => self.stop(conn),
            Err(RecvTimeoutError::Timeout) => {
                self.readers.release_idle();
                self.check_files()?;
                self.record_log_if_idle(conn)?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn write(&mut self, conn: &WriteConnection<'_>, first: Box<dyn AnyJob>) -> Result<ControlFlow<()>, String> {
        let mut batch = vec![first];
        let mut stop = gather(&self.queue.commands, &mut batch, BATCH);
        let (size, began) = (batch.len(), Instant::now());
        self.queue.take(size);
        let (outcome, fatal) = self.carry_out(conn, &mut batch);
        if matches!(outcome, Err(Error::Unavailable(_))) && began.elapsed() >= self.options.busy_timeout {
            // Another process is writing. The writes queued meanwhile would have to wait as long again, so they fail
            // with the batch.
            stop |= gather(&self.queue.commands, &mut batch, size + self.options.queue);
            self.queue.take(batch.len() - size);
        }
        self.options.observer.batch(size, began.elapsed());
        if let Some(why) = &fatal {
            // A client whose write failed must not find the service ready afterwards.
            self.queue.report.send_replace(State::Failed(why.clone()));
        }
        if let Some(first) = batch.pop() {
            let others = BatchReplies { jobs: batch, committed: outcome.clone(), began };
            first.finish(outcome, others);
        }
        if let Some(why) = fatal {
            return Err(why);
        }
        self.wal.checkpoint_if_due(conn).inspect_err(|_| self.files.mark_failed_sync())?;
        if stop { self.stop(conn) } else { Ok(ControlFlow::Continue(())) }
    }

    fn stop(&mut self, conn: &WriteConnection<'_>) -> Result<ControlFlow<()>, String> {
        self.check_files()?;
        self.readers.close();
        // Leaves a database that is a single file and an empty log, unless other processes use it.
        if let Some(generations) = self.generations.clone().filter(|generations| generations.was_alone) {
            let emptied = self.wal.checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)");
            emptied
                .inspect_err(|_| self.files.mark_failed_sync())
                .map_err(|error| format!("the last checkpoint failed: {error}"))?;
            if self.begin(conn).is_ok() {
                self.in_own_transaction(conn, |writer, conn| writer.end_generation(conn, &generations))?;
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// Closes the database after the last step, and reports how it ended.
    pub fn end(self, conn: Connection, end: Result<(), String>) {
        if let (Some(generations), Err(_)) = (&self.generations, self.files.check_names())
            && let Err(error) = generations.require_commits(&self.wal.index)
        {
            tracing::error!(%error, "cannot record the last commit, put back the files before the next start");
        }
        let state = end.map_or_else(State::Failed, |()| State::Stopped);
        let report = self.queue.report.clone();
        // Closes the connection first, because the caller of `close` may open the database again.
        drop((conn, self));
        report.send_replace(state);
    }

    fn check_files(&self) -> Result<(), String> {
        self.files.check().map_err(|gone| gone.to_string())
    }

    /// Commits a batch. Also returns why the process must end, if it must.
    fn carry_out(&mut self, conn: &WriteConnection<'_>, batch: &mut [Box<dyn AnyJob>]) -> (Result<()>, Option<String>) {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.wal.make_room(conn).and_then(|()| self.commit(conn, batch))));
        let Ok(outcome) = outcome else {
            return (Err(Error::Unknown("the writer panicked".into())), Some("the writer panicked".into()));
        };
        let fatal = match &outcome {
            Err(Error::SyncFailed(why)) => {
                self.remove_failed_commit(conn);
                Some(format!("a sync failed, so the state of the disk is unknown: {why}"))
            }
            _ if !conn.is_autocommit() => Some("a failed batch could not be rolled back".into()),
            // A commit to a file that was removed or replaced is not durable, so it must not be acknowledged.
            _ => match self.files.check_changes() {
                Ok(()) => None,
                Err(gone) => return (Err(gone.clone().unknown()), Some(gone.to_string())),
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
        for _ in 1..self.options.busy_timeout.as_millis() / LOCK_POLL.as_millis() {
            match conn.execute("BEGIN IMMEDIATE", []) {
                Err(error) if is_busy(&error) && began.elapsed() < self.options.busy_timeout => {
                    self.turn_began = Instant::now();
                }
                begun => return Ok(begun.map(drop)?),
            }
        }
        Ok(conn.execute("BEGIN IMMEDIATE", []).map(drop)?)
    }

    /// Returns whether to read the record again: it is not one of the log, or was read half a second ago.
    fn is_record_due(&self) -> bool {
        let salts = self.wal.index.log_end().salts;
        self.recorded.is_none_or(|recorded| recorded.salts != salts) || self.record_read.elapsed() >= HOUSEKEEPING
    }

    /// Records the log and its last commit before another program may write to it.
    fn record_log_if_idle(&mut self, conn: &WriteConnection<'_>) -> Result<(), String> {
        let Some(generations) = self.generations.clone() else { return Ok(()) };
        if !self.is_record_due() {
            return Ok(());
        }
        let end = self.wal.index.log_end();
        self.record_read = Instant::now();
        let recorded = generations.recorded(&self.wal.index).map_err(|error| error.to_string())?;
        // One attempt, because a write may come meanwhile.
        if recorded == Some(end) || conn.execute_batch("BEGIN IMMEDIATE").is_err() {
            return Ok(());
        }
        self.in_own_transaction(conn, |writer, conn| match recorded {
            None => writer.start_generation(conn),
            Some(_) => writer.renew_record(&generations),
        })
    }

    /// Runs `work`, which need not succeed, and ends the transaction. An error is fatal to the process.
    fn in_own_transaction(
        &mut self,
        conn: &WriteConnection<'_>,
        work: impl FnOnce(&mut Self, &WriteConnection<'_>) -> Result<()>,
    ) -> Result<(), String> {
        let worked = work(self, conn);
        let rolled_back = if conn.is_autocommit() { Ok(()) } else { conn.execute_batch("ROLLBACK") };
        match worked {
            Err(Error::SyncFailed(why)) => {
                self.remove_failed_commit(conn);
                Err(format!("a sync failed: {why}"))
            }
            // The disk is full, or another process is writing.
            _ => rolled_back.map_err(|error| error.to_string()),
        }
    }

    fn remove_failed_commit(&self, conn: &WriteConnection<'_>) {
        self.files.mark_failed_sync();
        if let Err(error) = self.files.check_names().and_then(|()| self.wal.remove_failed_commit(conn)) {
            tracing::error!(%error, "failed commit not removed from the write-ahead log");
        }
    }

    /// Starts a generation if the log may restart with it, and records a log that another program or process has begun. Called in
    /// a transaction that can write, and ends in another one.
    fn start_generation(&mut self, conn: &WriteConnection<'_>) -> Result<()> {
        let Some(generations) = self.generations.clone() else { return Ok(()) };
        if self.is_record_due() {
            // Perhaps another process has recorded the log.
            self.recorded = generations.recorded(&self.wal.index)?;
            self.record_read = Instant::now();
            if self.recorded.is_some() {
                self.renew_record(&generations)?;
            }
        }
        if self.wal.index.is_written_back() {
            self.write_number_back(conn, &generations, "PRAGMA wal_checkpoint(RESTART)")?;
        }
        if self.recorded.is_none() { self.begin_log(conn, &generations) } else { Ok(()) }
    }

    /// Leaves a file that has everything and an empty log, unless other processes use them. Called like `start_generation`.
    fn end_generation(&mut self, conn: &WriteConnection<'_>, generations: &Generations) -> Result<()> {
        if !self.wal.is_empty() && self.wal.index.is_written_back() {
            self.write_number_back(conn, generations, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        }
        match self.wal.is_empty() {
            true => generations.record_empty(conn, &self.wal.index),
            false => self.begin_log(conn, generations),
        }
    }

    fn write_number_back(
        &mut self,
        conn: &WriteConnection<'_>,
        generations: &Generations,
        checkpoint: &str,
    ) -> Result<()> {
        self.recorded = None;
        generations.start(conn, &self.wal.index)?;
        self.wal.checkpoint(conn, checkpoint)?;
        self.begin(conn)
    }

    /// Begins the log and records it. Called in a transaction that can write, and ends in another one.
    fn begin_log(&mut self, conn: &WriteConnection<'_>, generations: &Generations) -> Result<()> {
        let numbers = generations.numbers(conn, &self.wal.index)?;
        generations.begin_log(conn, numbers, &self.wal.index)?;
        self.begin(conn)?;
        self.recorded = generations.record_log(conn, numbers, &self.wal.index)?;
        Ok(())
    }

    /// Records the last commit of a log that is recorded. Called in a transaction that can write.
    fn renew_record(&mut self, generations: &Generations) -> Result<()> {
        let end = self.wal.index.log_end();
        generations.renew_record(end)?;
        self.recorded = Some(end);
        Ok(())
    }

    fn commit(&mut self, conn: &WriteConnection<'_>, batch: &mut [Box<dyn AnyJob>]) -> Result<()> {
        self.begin(conn)?;
        let started = self.start_generation(conn);
        let before = self.wal.index.version();
        let run = started.and_then(|()| new_row::run(conn, batch));
        // After another process's failed sync, the kernel may give us older pages. Few commits can be based on them, because
        // that process marks the failure at once.
        let checked = run.and_then(|()| self.files.check_changes());
        let committed = checked.and_then(|()| conn.execute("COMMIT", []).map(drop).map_err(of_commit));
        if committed.is_err() && !conn.is_autocommit() {
            // No write of the batch was acknowledged. The caller checks the connection's state for success.
            let _ = conn.execute("ROLLBACK", []);
        }
        let after = self.wal.index.version();
        if committed.is_ok() {
            let effect = batch.iter().map(|job| job.effect()).max().unwrap_or(Effect::Any);
            self.readers.history.record(before, after, effect);
        }
        // A job has committed, or another process since.
        committed.map_err(|error| if after == before { error } else { error.unknown() })
    }
}

/// Converts the error of a commit. All of it may be in the log, unless a constraint or a full disk stopped it before its end.
fn of_commit(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation | ErrorCode::DiskFull) => error.into(),
        _ => Error::from(error).unknown(),
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
