//! Group commit: writes that arrive during a commit form the next batch.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::write::Write;
use crate::connect::connection::PreparedConnection;
use crate::error::{CLOSED, Error, Result, late};
use crate::observer::Observer;
use crate::supervisor::Supervisor;

/// Size of text after which a batch accepts no further writes.
const BATCH_BYTES: usize = 1 << 20;

/// Shortest wait for further writes. Below it, the timer's resolution would dominate.
const MIN_WAIT: Duration = Duration::from_micros(500);

/// Why a write was dropped before it was sent.
const EXPIRED: &str = "the write did not begin in time";

/// A queue of writes, and the task that commits them in batches: those that arrive during a commit form the next batch.
///
/// Two queues do not wait for each other. Only [`WriteQueue::close`] waits for writes that nobody waits for.
pub struct WriteQueue<W: Write> {
    /// Timeout of a write.
    timeout: Duration,
    jobs: mpsc::Sender<Job<W>>,
    /// True once the queue closes. The task has the only receiver.
    closing: watch::Sender<bool>,
    observer: Arc<dyn Observer>,
}

struct Job<W: Write> {
    write: W,
    bytes: usize,
    /// A write that has not begun by then is dropped, because its caller has given up.
    deadline: Instant,
    reply: Reply<W>,
}

type Reply<W> = oneshot::Sender<Completed<W>>;

/// The result of a write, and the time at which its batch began.
type Completed<W> = (Result<<W as Write>::Output>, Instant);

impl<W: Write> fmt::Debug for WriteQueue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteQueue").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl<W: Write> WriteQueue<W> {
    pub(crate) fn start(
        supervisor: Arc<Supervisor>,
        timeout: Duration,
        queue: usize,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (jobs, queued) = mpsc::channel(queue);
        let (closing, closed) = watch::channel(false);
        let writer =
            Writer { jobs: queued, closing: closed, writes: Vec::new(), replies: Vec::new(), completed: Vec::new() };
        tokio::spawn(writer.run(supervisor, Arc::clone(&observer)));
        Self { timeout, jobs, closing, observer }
    }

    /// Queues a write and waits for its commit. The write is carried out even if the caller stops waiting.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unavailable`] if the queue is full or closed, or no server accepts writes, and with
    /// [`Error::Failed`] if PostgreSQL rejected the write or another one of its batch; the write was not applied. Fails with
    /// [`Error::Unknown`] if it may have been.
    ///
    /// # Panics
    ///
    /// Panics if [`Write::bytes`] does.
    pub async fn submit(&self, write: W) -> Result<W::Output> {
        self.submit_timed(write, |_, _| {}).await
    }

    /// Like [`WriteQueue::submit`], and calls `timed` once the batch has ended, with the times of tokio's clock at which the
    /// write was queued and its batch began. Does not call it if no batch had the write, or the caller's wait timed out.
    ///
    /// # Errors
    ///
    /// As [`WriteQueue::submit`].
    ///
    /// # Panics
    ///
    /// As [`WriteQueue::submit`].
    pub async fn submit_timed(&self, write: W, timed: impl FnOnce(Instant, Instant)) -> Result<W::Output> {
        let queued = Instant::now();
        let deadline = queued + self.timeout;
        let (reply, completed) = oneshot::channel();
        // Here, because a panic would end the queue's task.
        let bytes = write.bytes();
        self.jobs.try_send(Job { write, bytes, deadline, reply }).map_err(|rejected| {
            Error::Unavailable(match rejected {
                TrySendError::Full(_) => {
                    self.observer.refused();
                    "the write queue is full".into()
                }
                TrySendError::Closed(_) => CLOSED.into(),
            })
        })?;
        match timeout_at(deadline, completed).await {
            Ok(Ok((completed, began))) => {
                timed(queued, began);
                completed
            }
            Ok(Err(_)) => Err(Error::Unknown(format!("{CLOSED}, before the commit"))),
            Err(_) => Err(Error::Unknown(late(self.timeout))),
        }
    }

    /// Number of writes that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    /// Commits the queued writes. Later ones fail with [`Error::Unavailable`].
    pub async fn close(&self) {
        self.closing.send_replace(true);
        // Until the task has ended.
        self.closing.closed().await;
    }
}

/// Ignores callers that have gone away.
fn send<T>((reply, result): (oneshot::Sender<T>, T)) {
    let _ = reply.send(result);
}

struct Writer<W: Write> {
    jobs: mpsc::Receiver<Job<W>>,
    closing: watch::Receiver<bool>,
    /// The next batch, and where to send its results.
    writes: Vec<W>,
    replies: Vec<Reply<W>>,
    /// Results of the last batch that are not yet sent.
    completed: Vec<(Reply<W>, Completed<W>)>,
}

impl<W: Write> Writer<W> {
    async fn run(mut self, supervisor: Arc<Supervisor>, observer: Arc<dyn Observer>) {
        // Size of the last batch, and the duration of its commit.
        let (mut size, mut took) = (0, Duration::ZERO);
        while self.gather(size, took / 4).await {
            let (began, writes) = (Instant::now(), std::mem::take(&mut self.writes));
            size = writes.len();
            if size == 0 {
                continue;
            }
            // Sends the batch before replying to the last one, so that the server is not idle in between.
            let (outcome, ()) =
                tokio::join!(commit(&supervisor, writes), async { self.completed.drain(..).for_each(send) });
            took = began.elapsed();
            observer.batch(size, took);
            self.complete(outcome, began);
        }
    }

    /// Gathers the queued writes, and waits for the first one. Returns false if the queue is closed and empty.
    ///
    /// Replies to the last batch are sent before any wait. Clients often send their next request at once. If commits are
    /// slow, because of the disk or a remote standby, the batch waits for these requests. Otherwise half of them would
    /// always just miss a batch. The wait ends when as many writes have arrived as were completed, or after `max_wait`: a
    /// quarter of the last commit, and none for commits shorter than 2 ms.
    async fn gather(&mut self, expected: usize, max_wait: Duration) -> bool {
        if *self.closing.borrow() {
            self.jobs.close();
        }
        let waits = max_wait >= MIN_WAIT;
        let mut next = self.jobs.try_recv().ok();
        if waits || next.is_none() {
            self.completed.drain(..).for_each(send);
        }
        if next.is_none() {
            next = self.next().await;
        }
        let (is_open, until, mut bytes) = (next.is_some(), Instant::now() + max_wait, 0);
        while let Some(job) = next {
            if job.deadline > Instant::now() {
                bytes += job.bytes;
                self.writes.push(job.write);
                self.replies.push(job.reply);
            } else {
                send((job.reply, (Err(Error::Unavailable(EXPIRED.into())), Instant::now())));
            }
            if self.writes.len() >= W::BATCH || bytes >= BATCH_BYTES {
                break;
            }
            next = match self.jobs.try_recv() {
                Err(TryRecvError::Empty) if waits && self.writes.len() < expected => {
                    timeout_at(until, self.next()).await.ok().flatten()
                }
                received => received.ok(),
            };
        }
        is_open
    }

    /// Waits for the next write. `None` if the queue is closed and empty.
    async fn next(&mut self) -> Option<Job<W>> {
        tokio::select! {
            job = self.jobs.recv() => return job,
            // It was closed or dropped.
            _ = self.closing.changed() => self.jobs.close(),
        }
        self.jobs.recv().await
    }

    /// Assigns the results of a batch to its callers.
    fn complete(&mut self, result: Result<Vec<W::Output>>, began: Instant) {
        let replies = self.replies.drain(..);
        match result {
            Ok(outcomes) => {
                self.completed.extend(replies.zip(outcomes.into_iter().map(|outcome| (Ok(outcome), began))));
            }
            Err(error) => self.completed.extend(replies.map(|reply| (reply, (Err(error.clone()), began)))),
        }
    }
}

async fn commit<W: Write>(supervisor: &Supervisor, batch: Vec<W>) -> Result<Vec<W::Output>> {
    let size = batch.len();
    let run = async |prepared: &PreparedConnection| {
        let outcomes = AssertUnwindSafe(async { W::run(prepared, batch).await }).catch_unwind().await;
        outcomes.unwrap_or_else(|_| {
            // It may have left a transaction open.
            prepared.connection.discard();
            Ok(Vec::new())
        })
    };
    let outcomes = supervisor.write(run).await?;
    if outcomes.len() != size {
        return Err(Error::Unknown(format!("{} of {size} writes have an outcome", outcomes.len())));
    }
    Ok(outcomes)
}
