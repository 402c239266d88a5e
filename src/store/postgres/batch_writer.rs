//! Batches: what waits while one batch is on its way is the next batch, in one statement.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::connection::{Connection, PreparedConnection};
use super::error::{ends_connection, timed_out};
use super::supervisor::{Supervisor, Watch};
use super::url::DatabaseUrl;
use super::{COMMIT_TIMEOUT, OPERATION_TIMEOUT, RECONNECT_TIMEOUT, Settings};
use crate::store::{Result, StoreError, WriterMeter};

/// How many writes share a statement at most: bounds how long the first of them waits.
const BATCH: usize = 512;

/// How many bytes of text a statement carries before it is closed to further writes.
const BATCH_BYTES: usize = 1 << 20;

/// The least that is waited for further writes: with a shorter wait, a timer's coarseness would be most of it.
const WORTH_WAITING: Duration = Duration::from_micros(500);

/// A write of which many go into one statement.
pub trait Write: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    /// How many of them share a statement at most.
    const AT_ONCE: usize = BATCH;

    /// The statements of `run`, which are prepared when its connection opens.
    fn statements() -> Vec<&'static str>;

    /// About how much it adds to a statement.
    fn bytes(&self) -> usize;

    /// Carries all of them out in one statement, and answers each, in their order.
    fn run(
        prepared: &PreparedConnection,
        batch: &[Self],
    ) -> impl Future<Output = std::result::Result<Vec<Self::Answer>, tokio_postgres::Error>> + Send;
}

/// Takes writes of one kind.
#[derive(Debug)]
pub struct Writer<W: Write> {
    queue: mpsc::Sender<Command<W>>,
    meter: Arc<WriterMeter>,
    connection: Watch,
}

enum Command<W: Write> {
    Write(Job<W>),
    /// Finish what was queued before, then end, and say so.
    Stop(oneshot::Sender<()>),
}

struct Job<W: Write> {
    write: W,
    /// Who asked does not wait longer: a write that has not begun by then is left out.
    deadline: Instant,
    reply: Reply<W>,
}

type Reply<W> = oneshot::Sender<Result<<W as Write>::Answer>>;

impl<W: Write> Writer<W> {
    /// Opens the writer's connection, which the log calls `name`.
    pub async fn open(
        url: &DatabaseUrl,
        keys_changed: &Arc<Notify>,
        settings: &Settings,
        name: &'static str,
    ) -> Result<Self> {
        let supervisor = Supervisor::open(url, keys_changed, W::statements(), name).await?;
        let (queue, commands) = mpsc::channel(settings.queue);
        let (meter, watch) = (Arc::<WriterMeter>::default(), supervisor.watch());
        tokio::spawn(work(supervisor, commands, Arc::clone(&meter)));
        Ok(Self { queue, meter, connection: watch })
    }

    /// Queues `write` and waits for its commit. It is carried out even when the caller stops waiting.
    pub async fn submit(&self, write: W) -> Result<W::Answer> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Command::Write(Job { write, deadline, reply })).map_err(|refused| {
            StoreError::Unavailable(match refused {
                mpsc::error::TrySendError::Full(_) => {
                    self.meter.refused.increment();
                    "the write queue is full".into()
                }
                mpsc::error::TrySendError::Closed(_) => "the store is closed".into(),
            })
        })?;
        self.meter.queued.increment();
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unavailable("the store closed before the commit".into())),
            Err(_) => Err(timed_out(OPERATION_TIMEOUT)),
        }
    }

    /// What it has counted, and whether its connection is up.
    pub fn seen(&self) -> (&WriterMeter, bool) {
        (&self.meter, self.connection.is_up())
    }

    pub async fn close(&self) {
        let (done, ended) = oneshot::channel();
        // An error, of either, means that the writer has ended already.
        if self.queue.send(Command::Stop(done)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

async fn work<W: Write>(supervisor: Supervisor, commands: mpsc::Receiver<Command<W>>, meter: Arc<WriterMeter>) {
    let mut worker = Worker {
        commands,
        meter,
        writes: Vec::with_capacity(BATCH),
        replies: Vec::with_capacity(BATCH),
        answers: Vec::with_capacity(BATCH),
    };
    // How many writes the last batch had, and how long its commit took.
    let (mut size, mut took) = (0, Duration::ZERO);
    let done = loop {
        let stop = worker.gather(size, took / 4).await;
        size = worker.writes.len();
        if size > 0 {
            let began = Instant::now();
            // It is sent before the last batch is answered, so that the server has work meanwhile.
            let (outcome, ()) =
                tokio::join!(commit(&supervisor, &worker.writes), async { worker.answers.drain(..).for_each(send) });
            took = began.elapsed();
            worker.meter.batch.observe(size as u64);
            worker.meter.commit.observe_duration(took);
            worker.end(outcome);
        }
        if stop.is_some() || worker.commands.is_closed() {
            break stop;
        }
    };
    worker.answers.drain(..).for_each(send);
    worker.commands.close();
    supervisor.close();
    if let Some(done) = done {
        let _ = done.send(());
    }
}

/// What is known of a write, and who waits for it.
type Answer<W> = (Reply<W>, Result<<W as Write>::Answer>);

/// Who asked may have gone away; the work is done all the same.
fn send<T>((reply, answer): (oneshot::Sender<T>, T)) {
    let _ = reply.send(answer);
}

struct Worker<W: Write> {
    commands: mpsc::Receiver<Command<W>>,
    meter: Arc<WriterMeter>,
    /// The batch, and those who wait for it.
    writes: Vec<W>,
    replies: Vec<Reply<W>>,
    /// Those of the last batch, until they are sent.
    answers: Vec<Answer<W>>,
}

impl<W: Write> Worker<W> {
    /// Takes what waits, once anything does; an order to stop ends the batch and is returned.
    ///
    /// The last batch is answered before anything is waited for. Those who were answered tend to ask again at once. Where
    /// commits are slow, by a disk or a standby far away, they are waited for: without that, half of them would always
    /// just miss a batch. It ends as soon as as many have come as were answered, or after `patience`.
    async fn gather(&mut self, expected: usize, patience: Duration) -> Option<oneshot::Sender<()>> {
        let waits = patience >= WORTH_WAITING;
        let mut next = self.commands.try_recv().ok();
        if waits || next.is_none() {
            self.answers.drain(..).for_each(send);
        }
        if next.is_none() {
            next = self.commands.recv().await;
        }
        let until = Instant::now() + patience;
        let mut bytes = 0;
        loop {
            if let Some(Command::Write(_)) = &next {
                self.meter.queued.decrement();
            }
            match next? {
                Command::Write(job) if job.deadline > Instant::now() => {
                    bytes += job.write.bytes();
                    self.writes.push(job.write);
                    self.replies.push(job.reply);
                }
                Command::Write(_) => {}
                Command::Stop(done) => return Some(done),
            }
            if self.writes.len() == W::AT_ONCE || bytes >= BATCH_BYTES {
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

    /// Ends the batch: what to tell whom.
    fn end(&mut self, outcome: Result<Vec<W::Answer>>) {
        self.writes.clear();
        let replies = self.replies.drain(..);
        match outcome {
            Ok(answers) => self.answers.extend(replies.zip(answers.into_iter().map(Ok))),
            Err(error) => self.answers.extend(replies.map(|reply| (reply, Err(error.clone())))),
        }
    }
}

async fn commit<W: Write>(supervisor: &Supervisor, batch: &[W]) -> Result<Vec<W::Answer>> {
    let prepared = supervisor.connection(Instant::now() + RECONNECT_TIMEOUT).await?;
    let answers = await_commit(&prepared.connection, Instant::now() + COMMIT_TIMEOUT, W::run(&prepared, batch)).await?;
    if answers.len() != batch.len() {
        return Err(StoreError::Failed(format!("{} of {} writes were answered", answers.len(), batch.len())));
    }
    Ok(answers)
}

/// Waits for a write until `deadline`. Where it is not known whether it came to be, it is `Unavailable`, and the
/// connection is given up.
pub async fn await_commit<T>(
    connection: &Connection,
    deadline: Instant,
    write: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let warnings = connection.warnings();
    match timeout_at(deadline, write).await {
        Ok(Ok(answer)) => {
            connection.not_warned_since(warnings).inspect_err(|_| connection.discard())?;
            Ok(answer)
        }
        Ok(Err(error)) => {
            if ends_connection(&error) {
                connection.discard();
            }
            Err(error.into())
        }
        Err(_) => {
            connection.discard();
            Err(timed_out(OPERATION_TIMEOUT))
        }
    }
}
