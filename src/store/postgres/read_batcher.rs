//! Reads of one kind that wait at the same time are asked together.
//!
//! A read is taken from the queue before it is sent, so whatever was committed before it was asked for shows in its
//! answer, also where it shares that answer with others.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::error::timed_out;
use super::readers::Readers;
use super::{OPERATION_TIMEOUT, Settings};
use crate::store::{Result, StoreError};

/// How many reads are taken from the queue at once: bounds how long the first of them waits.
const BATCH: usize = 256;

/// A read of which many are worth asking at once.
pub trait Read: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    /// Asks for all of them, and answers each as soon as it can.
    fn run(readers: &Readers, batch: Vec<Pending<Self>>) -> impl Future<Output = ()> + Send;
}

/// A read and who waits for it.
pub struct Pending<R: Read> {
    pub read: R,
    pub reply: oneshot::Sender<Result<R::Answer>>,
}

/// Takes reads of one kind.
#[derive(Debug)]
pub struct ReadBatcher<R: Read> {
    queue: mpsc::Sender<Pending<R>>,
    readers: Arc<Readers>,
}

impl<R: Read> ReadBatcher<R> {
    /// As many batches are under way at once as there are connections.
    pub fn start(readers: &Arc<Readers>, settings: &Settings) -> Self {
        let (queue, reads) = mpsc::channel(settings.queue);
        let reads = Arc::new(Mutex::new(reads));
        for _ in 0..settings.readers {
            tokio::spawn(work(Arc::clone(&reads), Arc::clone(readers)));
        }
        Self { queue, readers: Arc::clone(readers) }
    }

    pub async fn read(&self, read: R) -> Result<R::Answer> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Pending { read, reply }).map_err(|_| self.readers.too_many())?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unavailable("the store closed before the answer".into())),
            Err(_) => Err(timed_out(OPERATION_TIMEOUT)),
        }
    }
}

/// Ends when nobody can ask any more.
async fn work<R: Read>(reads: Arc<Mutex<mpsc::Receiver<Pending<R>>>>, readers: Arc<Readers>) {
    let mut batch = Vec::new();
    while reads.lock().await.recv_many(&mut batch, BATCH).await > 0 {
        // Who waits no longer needs no answer.
        batch.retain(|pending| !pending.reply.is_closed());
        if !batch.is_empty() {
            R::run(&readers, std::mem::take(&mut batch)).await;
        }
    }
}
