//! The queue of the writer.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::job::{AnyJob, Reply};
use crate::store::sqlite::WRITE_TIMEOUT;
use crate::store::{Result, StoreError, WriterMeter};
use crate::telemetry::traces;

/// Accepts writes for the writer.
#[derive(Debug)]
pub struct WriteQueue {
    queue: SyncSender<Command>,
    meter: Arc<WriterMeter>,
    state: watch::Receiver<State>,
    busy_since: Arc<Mutex<Option<Instant>>>,
}

pub enum Command {
    Write(Box<dyn AnyJob>),
    /// Commits the writes queued before, then stops.
    Stop,
}

/// The writer's end of the queue.
pub struct Consumer {
    pub commands: mpsc::Receiver<Command>,
    pub meter: Arc<WriterMeter>,
    pub capacity: usize,
    /// Reports the writer's failure before its jobs report theirs.
    pub report: watch::Sender<State>,
    /// When the writer began what it is doing. `None` while it waits for writes.
    pub busy_since: Arc<Mutex<Option<Instant>>>,
}

/// State of the writer.
#[derive(Clone, Debug)]
pub enum State {
    Running,
    Stopped,
    /// The thread has ended, and this process can no longer rely on the database.
    Failed(String),
}

impl WriteQueue {
    /// Returns a queue for at most `capacity` writes, and the writer's end of it.
    pub fn new(capacity: usize) -> (Self, Consumer) {
        let (queue, commands) = mpsc::sync_channel(capacity);
        let (report, state) = watch::channel(State::Running);
        let (meter, busy_since) = (Arc::<WriterMeter>::default(), Arc::default());
        let of_writer =
            Consumer { commands, meter: Arc::clone(&meter), capacity, report, busy_since: Arc::clone(&busy_since) };
        (Self { queue, meter, state, busy_since }, of_writer)
    }

    /// Queues a job and waits for its commit. It is carried out even if the caller stops waiting. `queued` is the time now.
    pub async fn submit<T>(
        &self,
        (job, result): (impl AnyJob + 'static, Receiver<Reply<T>>),
        queued: Instant,
    ) -> Result<T> {
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
        traces::write_spans(queued, others.began);
        drop(others);
        result
    }

    pub fn meter(&self) -> &WriterMeter {
        &self.meter
    }

    /// Fails if the writer has ended, or no write has been possible for [`WRITE_TIMEOUT`].
    pub fn check(&self) -> Result<()> {
        let busy = self.busy_since.lock().map(|since| since.elapsed()).filter(|busy| *busy > WRITE_TIMEOUT);
        match &*self.state.borrow() {
            State::Running => busy.map_or(Ok(()), |busy| {
                Err(StoreError::Unavailable(format!("a write has not ended for {} s", busy.as_secs())))
            }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writer_that_a_disk_stops_fails_the_check() {
        let (queue, writer) = WriteQueue::new(1);
        *writer.busy_since.lock() = Some(Instant::now());
        tokio::time::advance(WRITE_TIMEOUT).await;
        queue.check().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(queue.check().unwrap_err().to_string(), "unavailable: a write has not ended for 11 s");
        *writer.busy_since.lock() = None;
        queue.check().unwrap();
    }
}
