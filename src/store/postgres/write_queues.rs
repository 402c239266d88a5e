//! Queues of writes that may have idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::keyed::Keyed;
use super::write::{Write, WriteOutcome};
use crate::store::{Outcome, ReaderMeter, Result, WriteKey, WriterMeter};
use crate::telemetry::traces;
use postgres_group_commit::{Cluster, Observer};

/// Limit of the wait for an earlier write with the same key, and the interval between attempts.
const IN_PROGRESS_TIMEOUT: Duration = Duration::from_millis(200);
const IN_PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// Queues of one type of write, each with its own connection.
///
/// Writes with and without idempotency keys do not share batches: a batch with keys takes two more round trips.
#[derive(Debug)]
pub struct WriteQueues<W: Write> {
    plain: WriteQueue<W, false>,
    keyed: WriteQueue<W, true>,
}

impl<W: Write> WriteQueues<W> {
    /// Opens both queues, which log and metrics call by these names.
    pub async fn open(cluster: &Cluster, [plain, keyed]: [&'static str; 2]) -> Result<Self> {
        let (plain, keyed) = tokio::try_join!(WriteQueue::open(cluster, plain), WriteQueue::open(cluster, keyed))?;
        Ok(Self { plain, keyed })
    }

    pub async fn submit(&self, write: W, key: Option<WriteKey<W::Output>>) -> Result<WriteOutcome<W>> {
        match key {
            Some(key) => self.keyed.submit(write, Some(key)).await,
            None => self.plain.submit_once(write, None).await,
        }
    }

    pub fn meters(&self) -> [(&'static str, &WriterMeter, i64); 2] {
        [self.plain.meter(), self.keyed.meter()]
    }

    pub async fn close(&self) {
        tokio::join!(self.plain.queue.close(), self.keyed.queue.close());
    }
}

/// A queue with its metrics.
#[derive(Debug)]
pub struct WriteQueue<W: Write, const TAKES_KEYS: bool> {
    name: &'static str,
    pub queue: postgres_group_commit::WriteQueue<Keyed<W, TAKES_KEYS>>,
    meter: Arc<WriterMeter>,
}

impl<W: Write, const TAKES_KEYS: bool> WriteQueue<W, TAKES_KEYS> {
    /// Opens the queue, which log and metrics call `name`.
    pub async fn open(cluster: &Cluster, name: &'static str) -> Result<Self> {
        let meter = Arc::<WriterMeter>::default();
        let observer: Arc<dyn Observer> = Arc::clone(&meter) as _;
        Ok(Self { name, queue: cluster.write_queue(name, observer).await?, meter })
    }

    /// Queues a write and waits for its commit. The write is carried out even if the caller stops waiting.
    pub async fn submit(&self, write: W, key: Option<WriteKey<W::Output>>) -> Result<WriteOutcome<W>> {
        let Some(key) = key else { return self.submit_once(write, None).await };
        let until = Instant::now() + IN_PROGRESS_TIMEOUT;
        loop {
            match self.submit_once(write.clone(), Some(key.clone())).await? {
                Outcome::InProgress if Instant::now() < until => sleep(IN_PROGRESS_INTERVAL).await,
                outcome => return Ok(outcome),
            }
        }
    }

    async fn submit_once(&self, write: W, key: Option<WriteKey<W::Output>>) -> Result<WriteOutcome<W>> {
        Ok(self.queue.submit_timed(Keyed(write, key), traces::write_spans).await?)
    }

    /// Returns the name of the queue, its metrics, and the number of writes that wait.
    pub fn meter(&self) -> (&'static str, &WriterMeter, i64) {
        (self.name, &self.meter, self.queue.waiting() as i64)
    }
}

impl Observer for WriterMeter {
    fn refused(&self) {
        self.refused.increment();
    }

    fn batch(&self, writes: usize, took: Duration) {
        self.batch.observe(writes as u64);
        self.commit.observe_duration(took);
    }
}

impl Observer for ReaderMeter {
    fn refused(&self) {
        self.refused.increment();
    }

    fn query(&self, took: Duration) {
        self.duration.observe_duration(took);
    }
}
