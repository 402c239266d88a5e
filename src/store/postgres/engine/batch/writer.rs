//! Group commit: writes that arrive during a commit form the next batch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::write::{KeyedWrite, Write, WriteOutcome};
use crate::store::postgres::engine::connect::error::timed_out;
use crate::store::postgres::engine::connections::Connections;
use crate::store::postgres::engine::supervisor::Supervisor;
use crate::store::postgres::keyed;
use crate::store::{Meters, Outcome, Result, StoreError, WriteKey, WriterMeter};
use crate::telemetry::traces;

/// Maximum number of writes per batch. Bounds the wait of the first write.
const BATCH: usize = 512;

/// Size of text after which a batch accepts no further writes.
const BATCH_BYTES: usize = 1 << 20;

/// Shortest wait for further writes. Below it, the timer's resolution would dominate.
const MIN_WAIT: Duration = Duration::from_micros(500);

/// Limit of the wait for an earlier write with the same key, and the interval between attempts.
const IN_PROGRESS_TIMEOUT: Duration = Duration::from_millis(200);
const IN_PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// Queues of one type of write, each with its own connection.
///
/// Writes with and without idempotency keys do not share batches: a batch with keys takes two more round trips.
#[derive(Debug)]
pub struct WriteQueues<W: Write> {
    plain: WriteQueue<W>,
    keyed: WriteQueue<W>,
}

impl<W: Write> WriteQueues<W> {
    /// Opens both queues, which log and metrics call by these names.
    pub async fn open(connections: &Connections, queue: usize, [plain, keyed]: [&'static str; 2]) -> Result<Self> {
        let (plain, keyed) = tokio::try_join!(
            WriteQueue::open(connections, queue, BATCH, W::STATEMENTS, plain),
            WriteQueue::open_keyed(connections, queue, keyed),
        )?;
        Ok(Self { plain, keyed })
    }

    pub async fn submit(&self, write: W, key: Option<WriteKey<W::Output>>) -> Result<WriteOutcome<W>> {
        if key.is_some() { &self.keyed } else { &self.plain }.submit(write, key).await
    }

    pub fn add_to<'queues>(&'queues self, meters: &mut Meters<'queues>) {
        self.plain.add_to(meters);
        self.keyed.add_to(meters);
    }

    pub async fn close(&self) {
        tokio::join!(self.plain.close(), self.keyed.close());
    }
}

/// A queue of writes and the task that commits them in batches.
#[derive(Debug)]
pub struct WriteQueue<W: Write> {
    name: &'static str,
    /// Timeout of a write.
    timeout: Duration,
    commands: mpsc::Sender<Command<W>>,
    meter: Arc<WriterMeter>,
}

enum Command<W: Write> {
    Write(Job<W>),
    /// Commits the writes queued before, then stops and replies.
    Stop(oneshot::Sender<()>),
}

struct Job<W: Write> {
    write: KeyedWrite<W>,
    /// A write that has not begun by then is dropped, because its caller has given up.
    deadline: Instant,
    reply: Reply<W>,
}

type Reply<W> = oneshot::Sender<Completed<W>>;

/// The result of a write, and the time at which its batch began.
type Completed<W> = (Result<WriteOutcome<W>>, Instant);

impl<W: Write> WriteQueue<W> {
    /// Opens a queue for writes with keys, which log and metrics call `name`.
    pub async fn open_keyed(connections: &Connections, queue: usize, name: &'static str) -> Result<Self> {
        let statements = [keyed::BATCH, W::STATEMENTS].concat();
        Self::open(connections, queue, W::KEYED_BATCH, &statements, name).await
    }

    async fn open(
        connections: &Connections,
        queue: usize,
        max_batch: usize,
        statements: &[&'static str],
        name: &'static str,
    ) -> Result<Self> {
        let supervisor = connections.open(statements, name).await?;
        let (commands, queued) = mpsc::channel(queue);
        let meter = Arc::<WriterMeter>::default();
        tokio::spawn(work(supervisor, queued, max_batch, Arc::clone(&meter)));
        Ok(Self { name, timeout: connections.connector.limits().operation(), commands, meter })
    }

    /// Queues a write and waits for its commit. The write is carried out even if the caller stops waiting.
    pub async fn submit(&self, write: W, key: Option<WriteKey<W::Output>>) -> Result<WriteOutcome<W>> {
        let Some(key) = key else { return self.submit_once((write, None)).await };
        let until = Instant::now() + IN_PROGRESS_TIMEOUT;
        loop {
            match self.submit_once((write.clone(), Some(key.clone()))).await? {
                Outcome::InProgress if Instant::now() < until => sleep(IN_PROGRESS_INTERVAL).await,
                outcome => return Ok(outcome),
            }
        }
    }

    async fn submit_once(&self, write: KeyedWrite<W>) -> Result<WriteOutcome<W>> {
        let queued = Instant::now();
        let deadline = queued + self.timeout;
        let (reply, completed) = oneshot::channel();
        self.commands.try_send(Command::Write(Job { write, deadline, reply })).map_err(|rejected| {
            StoreError::Unavailable(match rejected {
                mpsc::error::TrySendError::Full(_) => {
                    self.meter.refused.increment();
                    "the write queue is full".into()
                }
                mpsc::error::TrySendError::Closed(_) => "the store is closed".into(),
            })
        })?;
        self.meter.queued.increment();
        match timeout_at(deadline, completed).await {
            Ok(Ok((completed, began))) => {
                traces::write_spans(queued, began);
                completed
            }
            Ok(Err(_)) => Err(StoreError::Unavailable("the store closed before the commit".into())),
            Err(_) => Err(timed_out(self.timeout)),
        }
    }

    pub fn add_to<'queue>(&'queue self, meters: &mut Meters<'queue>) {
        meters.writers.push((self.name, &self.meter));
    }

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
    max_batch: usize,
    meter: Arc<WriterMeter>,
) {
    let mut writer =
        Writer { commands, max_batch, meter, writes: Vec::new(), replies: Vec::new(), completed: Vec::new() };
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
            writer.meter.batch.observe(size as u64);
            writer.meter.commit.observe_duration(took);
            writer.complete(outcome, began);
        }
        if stop.is_some() || writer.commands.is_closed() {
            break stop;
        }
    };
    writer.completed.drain(..).for_each(send);
    writer.commands.close();
    if let Some(done) = done {
        let _ = done.send(());
    }
}

/// Ignores callers that have gone away.
fn send<T>((reply, result): (oneshot::Sender<T>, T)) {
    let _ = reply.send(result);
}

struct Writer<W: Write> {
    commands: mpsc::Receiver<Command<W>>,
    max_batch: usize,
    meter: Arc<WriterMeter>,
    /// The next batch, and where to send its results.
    writes: Vec<KeyedWrite<W>>,
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
            if let Some(Command::Write(_)) = &next {
                self.meter.queued.decrement();
            }
            match next? {
                Command::Write(job) if job.deadline > Instant::now() => {
                    bytes += job.write.0.bytes();
                    self.writes.push(job.write);
                    self.replies.push(job.reply);
                }
                Command::Write(_) => {}
                Command::Stop(done) => return Some(done),
            }
            if self.writes.len() == self.max_batch || bytes >= BATCH_BYTES {
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
    fn complete(&mut self, result: Result<Vec<WriteOutcome<W>>>, began: Instant) {
        let replies = self.replies.drain(..);
        match result {
            Ok(outcomes) => {
                self.completed.extend(replies.zip(outcomes.into_iter().map(|outcome| (Ok(outcome), began))));
            }
            Err(error) => self.completed.extend(replies.map(|reply| (reply, (Err(error.clone()), began)))),
        }
    }
}

async fn commit<W: Write>(supervisor: &Supervisor, batch: Vec<KeyedWrite<W>>) -> Result<Vec<WriteOutcome<W>>> {
    let size = batch.len();
    let outcomes = supervisor.write(async |prepared| {
        if batch.iter().any(|(_, key)| key.is_some()) {
            return keyed::run(prepared, batch).await;
        }
        let results = W::run(prepared, batch.into_iter().map(|(write, _)| write).collect()).await?;
        Ok(results.into_iter().map(Outcome::from).collect())
    });
    let outcomes: Vec<_> = outcomes.await?;
    if outcomes.len() != size {
        return Err(StoreError::Failed(format!("{} of {size} writes were completed", outcomes.len())));
    }
    Ok(outcomes)
}
