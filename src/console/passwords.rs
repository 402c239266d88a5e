//! Hashing and checking passwords: dear on purpose, and so never on an async worker and never many at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::{Semaphore, oneshot};

use crate::domain::Secret;
use crate::domain::account::{NewPassword, PasswordDigest};
use crate::metrics::Counter;

/// How many may wait or run; further ones are refused at once, so that a flood of sign-ins stays small.
const PLACES: usize = 32;

/// How far a thread that hashes stands back behind those of the API (nice(2)): with both at work on one core, it gets a
/// quarter of it. On Linux this is a thread's own, and not the process's.
const POLITENESS: i32 = 5;

type Work = Box<dyn FnOnce() + Send>;

/// Threads that hash: as many as every second core, so that the API keeps the others. They are always the same ones,
/// since glibc keeps the memory of a hash (19 MiB) for each thread that has made one.
#[derive(Debug)]
pub struct Passwords {
    places: Arc<Semaphore>,
    queue: Sender<Work>,
    hashed: AtomicU64,
    refused: Counter,
}

/// Too many passwords are being hashed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl Passwords {
    pub fn new() -> Self {
        let (queue, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        for _ in 0..threads() {
            let work = Arc::clone(&work);
            let started = thread::Builder::new().name("password".into()).spawn(move || hash_all(&work));
            started.expect("a process that begins can start a thread");
        }
        Self { places: Arc::new(Semaphore::new(PLACES)), queue, hashed: AtomicU64::new(0), refused: Counter::default() }
    }

    /// How many passwords were hashed or checked so far.
    pub fn count(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    pub async fn hash(&self, password: NewPassword) -> Result<PasswordDigest, Busy> {
        self.run(move || password.hash()).await
    }

    /// Whether `presented` is the password of `digest`. Without one the answer is no, and takes as long.
    pub async fn check(&self, presented: Secret, digest: Option<PasswordDigest>) -> Result<bool, Busy> {
        self.run(move || {
            let known = digest.is_some();
            digest.unwrap_or_else(PasswordDigest::of_nobody).matches(&presented) && known
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        // The place goes along: a client that goes away does not stop the hashing, and must not make room for more.
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            self.refused.increment();
            Busy
        })?;
        self.hashed.fetch_add(1, Ordering::Relaxed);
        let (answer, hashed) = oneshot::channel();
        let work: Work = Box::new(move || {
            let result = work();
            drop(place);
            // Whoever asked may have gone away.
            let _ = answer.send(result);
        });
        self.queue.send(work).expect("the threads end after the queue");
        Ok(hashed.await.expect("hashing does not panic"))
    }
}

fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    (cores / 2).max(1)
}

/// Hashes until nobody can ask any more.
fn hash_all(work: &Mutex<Receiver<Work>>) {
    // Where it fails, hashing is only less polite.
    let _ = rustix::process::nice(POLITENESS);
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(work) => work(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_refused_beyond_the_places_there_are() {
        let passwords = Arc::new(Passwords::new());
        let (release, hold) = mpsc::channel::<()>();
        let hold = Arc::new(Mutex::new(hold));
        let waiting: Vec<_> = (0..PLACES)
            .map(|_| {
                let (passwords, hold) = (Arc::clone(&passwords), Arc::clone(&hold));
                tokio::spawn(async move { passwords.run(move || assert!(hold.lock().unwrap().recv().is_err())).await })
            })
            .collect();
        while passwords.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(passwords.run(|| ()).await, Err(Busy));

        drop(release);
        for one in waiting {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert_eq!(passwords.run(|| ()).await, Ok(()));
    }

    #[tokio::test]
    async fn who_goes_away_does_not_make_room_for_more() {
        let passwords = Passwords::new();
        let (release, wait) = mpsc::channel::<()>();
        let hashing = passwords.run(move || wait.recv().unwrap());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), hashing).await.is_err());

        assert_eq!(passwords.places.available_permits(), PLACES - 1, "it still runs");
        release.send(()).unwrap();
        let all = passwords.places.acquire_many(PLACES as u32);
        drop(tokio::time::timeout(std::time::Duration::from_secs(20), all).await.unwrap());
    }
}
