//! Reads of one kind that wait at the same time are asked together.
//!
//! A read is taken from the queue before it is sent, so whatever was committed before it was asked for shows in its
//! answer, also where it shares that answer with others.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::readers::Readers;
use super::session::silent;
use super::{PATIENCE, Settings};
use crate::store::{Result, StoreError};

/// How many reads are taken from the queue at once: bounds how long the first of them waits.
const BATCH: usize = 256;

/// A read of which many are worth asking at once.
pub trait Read: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    /// Asks for all of them, and answers each as soon as it can.
    fn run(readers: &Readers, batch: Vec<Question<Self>>) -> impl Future<Output = ()> + Send;
}

/// A read and who waits for it.
pub struct Question<R: Read> {
    pub read: R,
    pub reply: oneshot::Sender<Result<R::Answer>>,
}

/// Takes reads of one kind.
#[derive(Debug)]
pub struct Together<R: Read> {
    queue: mpsc::Sender<Question<R>>,
    readers: Arc<Readers>,
}

impl<R: Read> Together<R> {
    /// As many batches are under way at once as there are connections.
    pub fn start(readers: &Arc<Readers>, settings: &Settings) -> Self {
        let (queue, questions) = mpsc::channel(settings.queue);
        let questions = Arc::new(Mutex::new(questions));
        for _ in 0..settings.readers {
            tokio::spawn(work(Arc::clone(&questions), Arc::clone(readers)));
        }
        Self { queue, readers: Arc::clone(readers) }
    }

    pub async fn ask(&self, read: R) -> Result<R::Answer> {
        let deadline = Instant::now() + PATIENCE;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Question { read, reply }).map_err(|_| self.readers.too_many())?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unavailable("the store closed before the answer".into())),
            Err(_) => Err(silent(PATIENCE)),
        }
    }
}

/// Ends when nobody can ask any more.
async fn work<R: Read>(questions: Arc<Mutex<mpsc::Receiver<Question<R>>>>, readers: Arc<Readers>) {
    let mut batch = Vec::new();
    while questions.lock().await.recv_many(&mut batch, BATCH).await > 0 {
        // Who waits no longer needs no answer.
        batch.retain(|question| !question.reply.is_closed());
        if !batch.is_empty() {
            R::run(&readers, std::mem::take(&mut batch)).await;
        }
    }
}
