//! The queue of the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::job::{AnyJob, Reply};
use crate::observer::Observer;
use crate::readers::CLOSED;
use crate::{Error, Options, Result};

/// Accepts writes for the writer.
#[derive(Debug)]
pub struct WriteQueue {
    queue: SyncSender<Command>,
    /// Maximum time that a caller waits.
    pub timeout: Duration,
    /// Number of queued writes. May be negative for a moment, because a write is queued before it is counted.
    queued: Arc<AtomicIsize>,
    observer: Arc<dyn Observer>,
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
    pub queued: Arc<AtomicIsize>,
    /// Reports the writer's failure before its jobs report theirs.
    pub report: watch::Sender<State>,
    /// When the writer began what it is doing. `None` while it waits for writes.
    pub busy_since: Arc<Mutex<Option<Instant>>>,
}

impl Consumer {
    /// Counts writes that left the queue.
    pub fn take(&self, writes: usize) {
        self.queued.fetch_sub(writes.cast_signed(), Ordering::Relaxed);
    }
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
    /// Returns a queue, and the writer's end of it.
    pub fn new(options: &Options) -> (Self, Consumer) {
        let (queue, commands) = mpsc::sync_channel(options.queue);
        let (report, state) = watch::channel(State::Running);
        let (queued, busy_since) = (Arc::<AtomicIsize>::default(), Arc::default());
        let of_writer = Consumer { commands, queued: Arc::clone(&queued), report, busy_since: Arc::clone(&busy_since) };
        let (timeout, observer) = (options.write_timeout, Arc::clone(&options.observer));
        (Self { queue, timeout, queued, observer, state, busy_since }, of_writer)
    }

    /// Queues a job and waits for its commit. It is carried out even if the caller stops waiting. `queued` is the time now.
    pub async fn submit<T>(
        &self,
        (job, result): (impl AnyJob + 'static, Receiver<Reply<T>>),
        queued: Instant,
    ) -> Result<T> {
        self.queue.try_send(Command::Write(Box::new(job))).map_err(|rejected| {
            Error::Unavailable(match rejected {
                TrySendError::Full(_) => {
                    self.observer.refused();
                    "the write queue is full".into()
                }
                TrySendError::Disconnected(_) => CLOSED.into(),
            })
        })?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        let (result, others) =
            result.await.map_err(|_| Error::Unknown("the database closed before the commit".into()))?;
        self.observer.written(queued, others.began);
        drop(others);
        result
    }

    /// Returns the number of writes that wait for a batch.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// Fails if the writer has ended, or no write has been possible for [`Self::timeout`].
    pub fn check(&self) -> Result<()> {
        let busy = self.busy_since.lock().map(|since| since.elapsed()).filter(|busy| *busy > self.timeout);
        match &*self.state.borrow() {
            State::Running => busy.map_or(Ok(()), |busy| {
                Err(Error::Unavailable(format!("a write has not ended for {} s", busy.as_secs())))
            }),
            State::Stopped => Err(Error::Unavailable(CLOSED.into())),
            State::Failed(why) => Err(Error::Unavailable(why.clone())),
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
        let (queue, writer) = WriteQueue::new(&Options::default());
        *writer.busy_since.lock() = Some(Instant::now());
        tokio::time::advance(queue.timeout).await;
        queue.check().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(queue.check().unwrap_err().to_string(), "unavailable: a write has not ended for 11 s");
        *writer.busy_since.lock() = None;
        queue.check().unwrap();
    }
}
