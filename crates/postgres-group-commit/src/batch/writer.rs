//! Group commit: writes that arrive during a commit form the next batch.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
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
    commands: mpsc::Sender<Command<W>>,
    observer: Arc<dyn Observer>,
}

enum Command<W: Write> {
    Write(Job<W>),
    /// Commits the writes queued before, then stops and replies.
    Stop(oneshot::Sender<()>),
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
        let (commands, queued) = mpsc::channel(queue);
        tokio::spawn(work(supervisor, queued, Arc::clone(&observer)));
        Self { timeout, commands, observer }
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
        self.commands.try_send(Command::Write(Job { write, bytes, deadline, reply })).map_err(|rejected| {
            Error::Unavailable(match rejected {
                mpsc::error::TrySendError::Full(_) => {
                    self.observer.refused();
                    "the write queue is full".into()
                }
                mpsc::error::TrySendError::Closed(_) => CLOSED.into(),
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
        self.commands.max_capacity() - self.commands.capacity()
    }

    /// Commits the queued writes. Later ones fail with [`Error::Unavailable`].
    pub async fn close(&self) {
        let (done, stopped) = oneshot::channel();
        // Either error means that the task has already ended.
        if self.commands.send(Command::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }
}

async fn work<W: Write>(
    supervisor: Arc<Supervisor>,
    commands: mpsc::Receiver<Command<W>>,
    observer: Arc<dyn Observer>,
) {
    let mut writer = Writer { commands, writes: Vec::new(), replies: Vec::new(), completed: Vec::new() };
    // Size of the last batch, and the duration of its commit.
    let (mut size, mut took) = (0, Duration::ZERO);
    let done = loop {
        let stop = writer.gather(size, took / 4).await;
        size = writer.writes.len();
        if size > 0 {
            let began = Instant::now();
            let writes = std::mem::take(&mut writer.writes);
            // Sends the batch before replying to the last one, so that the server is not idle in between.
            let (outcome, ()) =
                tokio::join!(commit(&supervisor, writes), async { writer.completed.drain(..).for_each(send) });
            took = began.elapsed();
            observer.batch(size, took);
            writer.complete(outcome, began);
        }
        if stop.is_some() || writer.commands.is_closed() {
            break stop;
        }
    };
    writer.completed.drain(..).for_each(send);
    writer.commands.close();
    let mut stops: Vec<_> = done.into_iter().collect();
    while let Ok(command) = writer.commands.try_recv() {
        match command {
            Command::Write(job) => send((job.reply, (Err(Error::Unavailable(CLOSED.into())), Instant::now()))),
            Command::Stop(done) => stops.push(done),
        }
    }
    for done in stops {
        let _ = done.send(());
    }
}

/// Ignores callers that have gone away.
fn send<T>((reply, result): (oneshot::Sender<T>, T)) {
    let _ = reply.send(result);
}

struct Writer<W: Write> {
    commands: mpsc::Receiver<Command<W>>,
    /// The next batch, and where to send its results.
    writes: Vec<W>,
    replies: Vec<Reply<W>>,
    /// Results of the last batch that are not yet sent.
    completed: Vec<(Reply<W>, Completed<W>)>,
}

impl<W: Write> Writer<W> {
    /// Gathers the queued writes, and waits for the first one. Returns `Some` if the writer is to stop after them.
    ///
    /// Replies to the last batch are sent before any wait. Clients often send their next request at once. If commits are
    /// slow, because of the disk or a remote standby, the batch waits for these requests. Otherwise half of them would
    /// always just miss a batch. The wait ends when as many writes have arrived as were completed, or after `max_wait`: a
    /// quarter of the last commit, and none for commits shorter than 2 ms.
    async fn gather(&mut self, expected: usize, max_wait: Duration) -> Option<oneshot::Sender<()>> {
        let waits = max_wait >= MIN_WAIT;
        let mut next = self.commands.try_recv().ok();
        if waits || next.is_none() {
            self.completed.drain(..).for_each(send);
        }
        if next.is_none() {
            next = self.commands.recv().await;
        }
        let until = Instant::now() + max_wait;
        let mut bytes = 0;
        loop {
            match next? {
                Command::Write(job) if job.deadline > Instant::now() => {
                    bytes += job.bytes;
                    self.writes.push(job.write);
                    self.replies.push(job.reply);
                }
                Command::Write(job) => send((job.reply, (Err(Error::Unavailable(EXPIRED.into())), Instant::now()))),
                Command::Stop(done) => return Some(done),
            }
            if self.writes.len() >= W::BATCH || bytes >= BATCH_BYTES {
                return None;
            }
            next = match self.commands.try_recv() {
                Ok(command) => Some(command),
                Err(_) if waits && self.writes.len() < expected => {
                    timeout_at(until, self.commands.recv()).await.ok()?
                }
                Err(_) => return None,
            };
        }
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
