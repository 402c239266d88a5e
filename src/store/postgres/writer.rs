//! Batches: what waits while one batch is on its way is the next batch, in one statement.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::ends_connection;
use super::link::Link;
use super::session::{Session, silent};
use super::{PATIENCE, Settings};
use crate::store::{Result, StoreError};

/// How many writes share a statement at most: bounds how long the first of them waits.
const BATCH: usize = 512;

/// How many bytes of text a statement carries before it is closed to further writes.
const BATCH_BYTES: usize = 1 << 20;

/// For a batch to be committed, a synchronous standby's confirmation included. Then it is not known what became of it.
const COMMIT: Duration = Duration::from_millis(1_500);

/// A write of which many go into one statement.
pub trait Write: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    /// About how much it adds to a statement.
    fn bytes(&self) -> usize;

    /// Carries all of them out in one statement, and answers each, in their order.
    fn run(
        session: &Session,
        batch: &[Self],
    ) -> impl Future<Output = std::result::Result<Vec<Self::Answer>, tokio_postgres::Error>> + Send;
}

/// Takes writes of one kind.
#[derive(Debug)]
pub struct Writer<W: Write> {
    queue: mpsc::Sender<Order<W>>,
}

enum Order<W: Write> {
    Write(Job<W>),
    /// Finish what was queued before, then end, and say so.
    Stop(oneshot::Sender<()>),
}

struct Job<W: Write> {
    write: W,
    /// Who asked does not wait longer: a write that has not begun by then is left out.
    deadline: Instant,
    reply: oneshot::Sender<Result<W::Answer>>,
}

impl<W: Write> Writer<W> {
    pub fn start(link: Link, settings: &Settings) -> Self {
        let (queue, orders) = mpsc::channel(settings.queue);
        tokio::spawn(work(link, orders));
        Self { queue }
    }

    /// Queues `write` and waits for its commit. It is carried out even when the caller stops waiting.
    pub async fn submit(&self, write: W) -> Result<W::Answer> {
        let deadline = Instant::now() + PATIENCE;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Order::Write(Job { write, deadline, reply })).map_err(|refused| {
            StoreError::Unavailable(match refused {
                mpsc::error::TrySendError::Full(_) => "the write queue is full".into(),
                mpsc::error::TrySendError::Closed(_) => "the store is closed".into(),
            })
        })?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unavailable("the store closed before the commit".into())),
            Err(_) => Err(silent(PATIENCE)),
        }
    }

    pub async fn close(&self) {
        let (done, ended) = oneshot::channel();
        // An error, of either, means that the writer has ended already.
        if self.queue.send(Order::Stop(done)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

async fn work<W: Write>(link: Link, mut orders: mpsc::Receiver<Order<W>>) {
    let mut writes = Vec::with_capacity(BATCH);
    let mut replies = Vec::with_capacity(BATCH);
    let mut stop = None;
    while stop.is_none() {
        let Some(first) = orders.recv().await else { break };
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(order) = next {
            match order {
                Order::Write(job) if job.deadline > Instant::now() => {
                    bytes += job.write.bytes();
                    writes.push(job.write);
                    replies.push(job.reply);
                }
                Order::Write(_) => {}
                Order::Stop(done) => {
                    stop = Some(done);
                    break;
                }
            }
            next = if writes.len() < BATCH && bytes < BATCH_BYTES { orders.try_recv().ok() } else { None };
        }
        if writes.is_empty() {
            continue;
        }
        // Who asked may have gone away; the work is done all the same.
        match commit(&link, &writes).await {
            Ok(answers) => replies.drain(..).zip(answers).for_each(|(reply, answer)| _ = reply.send(Ok(answer))),
            Err(error) => replies.drain(..).for_each(|reply| _ = reply.send(Err(error.clone()))),
        }
        writes.clear();
    }
    orders.close();
    link.close();
    if let Some(done) = stop {
        let _ = done.send(());
    }
}

async fn commit<W: Write>(link: &Link, batch: &[W]) -> Result<Vec<W::Answer>> {
    let session = link.session(Instant::now() + PATIENCE).await?;
    let answers = settle(&session, W::run(&session, batch)).await?;
    if answers.len() != batch.len() {
        return Err(StoreError::Failed(format!("{} of {} writes were answered", answers.len(), batch.len())));
    }
    Ok(answers)
}

/// Waits for a write. Where it is not known whether it came to be, it is `Unavailable`, and the session is given up.
pub async fn settle<T>(
    session: &Session,
    write: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let warnings = session.connection.warnings();
    match timeout(COMMIT, write).await {
        Ok(Ok(answer)) => {
            session.connection.not_warned_since(warnings).inspect_err(|_| session.connection.discard())?;
            Ok(answer)
        }
        Ok(Err(error)) => {
            if ends_connection(&error) {
                session.connection.discard();
            }
            Err(error.into())
        }
        Err(_) => {
            session.connection.discard();
            Err(silent(COMMIT))
        }
    }
}
