//! Hashes and checks passwords. This is expensive on purpose, so it never runs on an async worker and only few hashes
//! run at once.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::api::{Cause, PasswordCounters};
use crate::console::PageError;
use crate::domain::Secret;
use crate::domain::account::{NewPassword, PasswordDigest, normalized};

/// Longest wait of a hash. Those that would wait longer are rejected at once, so that a flood of sign-ins stays small.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Numbers of hashes that may wait or run: even if they are slow, and even if they are quick, because each holds a connection.
const ALWAYS: usize = 32;
const MOST: usize = 256;

/// The duration of a hash until the first one is measured.
const FIRST_GUESS: Duration = Duration::from_millis(100);

/// Niceness of the hashing threads (nice(2)). When they share one core with the API, they get a tenth of it, which is
/// five sign-ins per second. On Linux, niceness belongs to a thread.
const NICE: i32 = 10;

/// Maximum number of threads: more than a hundred sign-ins per second, in 76 MiB.
const MAX_THREADS: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// Threads that hash: one for every second core, so that the API keeps the others.
#[derive(Debug)]
pub struct PasswordHasher {
    /// Those that no hash waits or runs in.
    places: Arc<Semaphore>,
    /// The duration of a hash, averaged over the last ones.
    took: Arc<Mutex<Duration>>,
    threads: u32,
    queue: Sender<Work>,
    counters: Arc<PasswordCounters>,
}

/// A place in the queue, until it is dropped and its hash has ended.
#[derive(Debug)]
pub struct QueuePlace<'p> {
    hasher: &'p PasswordHasher,
    permit: Arc<OwnedSemaphorePermit>,
}

impl PasswordHasher {
    pub fn new(counters: Arc<PasswordCounters>) -> Self {
        let (queue, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        let threads = threads(thread::available_parallelism().map_or(2, usize::from));
        let took = Arc::new(Mutex::new(FIRST_GUESS));
        for _ in 0..threads {
            let (work, took) = (Arc::clone(&work), Arc::clone(&took));
            let started = thread::Builder::new().name("password".into()).spawn(move || hash_all(&work, &took));
            started.expect("a process that begins can start a thread");
        }
        Self { places: Arc::new(Semaphore::new(MOST)), took, threads, queue, counters }
    }

    /// Takes a place in the queue. Callers take it before anything else, so that rejected attempts cost nothing.
    pub fn place(&self) -> Result<QueuePlace<'_>, PageError> {
        let waiting = self.waiting();
        let wait = *self.took.lock() * waiting as u32 / self.threads;
        let has_room = waiting < ALWAYS || wait <= LONGEST_WAIT;
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) if has_room => Ok(QueuePlace { hasher: self, permit: Arc::new(permit) }),
            _ => {
                self.counters.refused.increment();
                Err(PageError {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    title: "Busy",
                    message: "Too many people are signing in at the same time. Try again in a moment.".into(),
                    cause: Some(Cause("the password queue is full".to_owned())),
                    retry_after: Some(Duration::from_secs(wait.saturating_sub(LONGEST_WAIT).as_secs() + 1)),
                })
            }
        }
    }

    /// Returns the number of hashes that wait or run.
    fn waiting(&self) -> usize {
        MOST - self.places.available_permits()
    }
}

impl QueuePlace<'_> {
    pub async fn hash(&self, password: NewPassword) -> PasswordDigest {
        self.run(move || password.hash()).await
    }

    /// Returns whether `presented` is the password of `digest`. Without a digest, the check takes as long and fails.
    ///
    /// Early versions hashed passwords as entered, and not in NFKC. The number of hashes of a failure depends on the password
    /// alone.
    pub async fn check(&self, presented: Secret, digest: Option<PasswordDigest>) -> bool {
        let password = normalized(&presented);
        let is_normalized = password.expose() == presented.expose();
        self.check_form(password, digest.clone()).await || !is_normalized && self.check_form(presented, digest).await
    }

    async fn check_form(&self, presented: Secret, digest: Option<PasswordDigest>) -> bool {
        self.run(move || {
            let known = digest.is_some();
            digest.unwrap_or_else(PasswordDigest::dummy).matches(&presented) && known
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.hasher.counters.hashed.increment();
        // The place moves into the work: if the client goes away, the hash continues and keeps its place.
        let (place, (answer, hashed)) = (Arc::clone(&self.permit), oneshot::channel());
        let work: Work = Box::new(move || {
            let result = work();
            drop(place);
            // The caller may have gone away.
            let _ = answer.send(result);
        });
        self.hasher.queue.send(work).expect("the threads end after the queue");
        hashed.await.expect("hashing does not panic")
    }
}

fn threads(cores: usize) -> u32 {
    (cores / 2).clamp(1, MAX_THREADS) as u32
}

/// Hashes until the queue is closed.
fn hash_all(work: &Mutex<Receiver<Work>>, took: &Mutex<Duration>) {
    // If it fails, hashing only takes more of the API's time.
    let _ = rustix::process::nice(NICE);
    loop {
        let Ok(work) = work.lock().recv() else { return };
        let began = Instant::now();
        work();
        let last = began.elapsed();
        let mut average = took.lock();
        *average = (*average * 7 + last) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_takes_at_most_half_of_the_cores_and_four() {
        assert_eq!([1, 2, 4, 7, 64].map(threads), [1, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn full_queue_rejects_further_hashes() {
        // As on a machine of eight cores.
        let hasher = Arc::new(PasswordHasher { threads: 4, ..PasswordHasher::new(Arc::default()) });
        let (release, hold) = mpsc::channel::<()>();
        let hold = Arc::new(Mutex::new(hold));
        *hasher.took.lock() = LONGEST_WAIT / 4;
        let waiting: Vec<_> = (0..ALWAYS)
            .map(|_| {
                let (hasher, hold) = (Arc::clone(&hasher), Arc::clone(&hold));
                tokio::spawn(async move {
                    let place = hasher.place().unwrap();
                    place.run(move || assert!(hold.lock().recv().is_err())).await;
                })
            })
            .collect();
        testkit::until(async || hasher.waiting() == waiting.len()).await;
        let refused = hasher.place().unwrap_err();
        // Each thread has eight hashes to go, which take twice the longest wait.
        assert_eq!(refused.retry_after, Some(LONGEST_WAIT + Duration::from_secs(1)));
        assert_eq!(hasher.counters.refused.get(), 1);

        drop(release);
        for one in waiting {
            one.await.unwrap();
        }
        hasher.place().unwrap().run(|| ()).await;
    }

    #[tokio::test]
    async fn duration_of_a_hash_is_an_average() {
        let hasher = PasswordHasher::new(Arc::default());
        let hours = |hours| Duration::from_hours(hours);
        *hasher.took.lock() = hours(8);
        hasher.place().unwrap().run(|| ()).await;
        testkit::within(testkit::TIMEOUT, "measuring the hash", || *hasher.took.lock() != hours(8));
        assert!((hours(7)..hours(8)).contains(&*hasher.took.lock()));
    }

    #[tokio::test]
    async fn abandoned_hash_keeps_its_place() {
        let hasher = PasswordHasher::new(Arc::default());
        let (release, wait) = mpsc::channel::<()>();
        let hashing = async { hasher.place().unwrap().run(move || wait.recv().unwrap()).await };
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), hashing).await.is_err());

        assert_eq!(hasher.waiting(), 1, "it still runs");
        release.send(()).unwrap();
        let all = hasher.places.acquire_many(MOST as u32);
        drop(tokio::time::timeout(std::time::Duration::from_secs(60), all).await.unwrap());
    }
}
