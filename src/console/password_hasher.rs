//! Hashing and checking passwords: dear on purpose, and so never on an async worker and never many at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::domain::Secret;
use crate::domain::account::{HashingMemory, NewPassword, PasswordDigest};
use crate::http::PasswordCounters;

/// How many may wait or run; further ones are refused at once, so that a flood of sign-ins stays small.
const PLACES: usize = 32;

/// How far a thread that hashes stands back behind those of the API (nice(2)): with both at work on one core, it gets a
/// tenth of it, which is five sign-ins a second. On Linux this is a thread's own, and not the process's.
const POLITENESS: i32 = 10;

/// How many threads hash at most: more than a hundred sign-ins a second, in 76 MiB.
const MOST_THREADS: usize = 4;

type Work = Box<dyn FnOnce(&mut HashingMemory) + Send>;

/// Threads that hash: as many as every second core, so that the API keeps the others. Each has the memory for it.
#[derive(Debug)]
pub struct PasswordHasher {
    places: Arc<Semaphore>,
    queue: Sender<Work>,
    counters: Arc<PasswordCounters>,
    began: Instant,
    /// The second, since `began`, in which the log was last told of refusals, and one more.
    told: AtomicU64,
}

/// A place among those who wait or whose password is being hashed.
#[derive(Debug)]
pub struct Place<'p> {
    hasher: &'p PasswordHasher,
    permit: Arc<OwnedSemaphorePermit>,
}

/// Too many passwords are being hashed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl PasswordHasher {
    pub fn new(counters: Arc<PasswordCounters>) -> Self {
        let (queue, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        for _ in 0..threads() {
            let work = Arc::clone(&work);
            let started = thread::Builder::new().name("password".into()).spawn(move || hash_all(&work));
            started.expect("a process that begins can start a thread");
        }
        Self {
            places: Arc::new(Semaphore::new(PLACES)),
            queue,
            counters,
            began: Instant::now(),
            told: AtomicU64::new(0),
        }
    }

    /// A place, where one is free. It is asked for before anything else is done, so that who is refused costs nothing.
    pub fn place(&self) -> Result<Place<'_>, Busy> {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => Ok(Place { hasher: self, permit: Arc::new(permit) }),
            Err(_) => {
                self.counters.refused.increment();
                self.tell_of_refusals();
                Err(Busy)
            }
        }
    }

    /// Refusals come in floods: the log has a line a second of them.
    fn tell_of_refusals(&self) {
        let second = self.began.elapsed().as_secs() + 1;
        if self.told.swap(second, Ordering::Relaxed) != second {
            let refused = self.counters.refused.get();
            tracing::warn!(refused, "too many passwords are being hashed; so many attempts were refused so far");
        }
    }
}

impl Place<'_> {
    pub async fn hash(&self, password: NewPassword) -> PasswordDigest {
        self.run(move |memory| password.hash(memory)).await
    }

    /// Whether `presented` is the password of `digest`. Without one the answer is no, and takes as long.
    pub async fn check(&self, presented: Secret, digest: Option<PasswordDigest>) -> bool {
        self.run(move |memory| {
            let known = digest.is_some();
            digest.unwrap_or_else(PasswordDigest::dummy).matches(&presented, memory) && known
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut HashingMemory) -> T + Send + 'static) -> T {
        self.hasher.counters.hashed.increment();
        // The place goes along: a client that goes away does not stop the hashing, and must not make room for more.
        let (place, (answer, hashed)) = (Arc::clone(&self.permit), oneshot::channel());
        let work: Work = Box::new(move |memory| {
            let result = work(memory);
            drop(place);
            // Whoever asked may have gone away.
            let _ = answer.send(result);
        });
        self.hasher.queue.send(work).expect("the threads end after the queue");
        hashed.await.expect("hashing does not panic")
    }
}

fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    (cores / 2).clamp(1, MOST_THREADS)
}

/// Hashes until nobody can ask any more.
fn hash_all(work: &Mutex<Receiver<Work>>) {
    // Where it fails, hashing is only less polite.
    let _ = rustix::process::nice(POLITENESS);
    let mut memory = HashingMemory::default();
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(work) => work(&mut memory),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_refused_beyond_the_places_there_are() {
        let passwords = Arc::new(PasswordHasher::new(Arc::default()));
        let (release, hold) = mpsc::channel::<()>();
        let hold = Arc::new(Mutex::new(hold));
        let waiting: Vec<_> = (0..PLACES)
            .map(|_| {
                let (passwords, hold) = (Arc::clone(&passwords), Arc::clone(&hold));
                tokio::spawn(async move {
                    let place = passwords.place().unwrap();
                    place.run(move |_| assert!(hold.lock().unwrap().recv().is_err())).await;
                })
            })
            .collect();
        while passwords.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(passwords.place().unwrap_err(), Busy);
        assert_eq!(passwords.counters.refused.get(), 1);

        drop(release);
        for one in waiting {
            one.await.unwrap();
        }
        passwords.place().unwrap().run(|_| ()).await;
    }

    #[tokio::test]
    async fn who_goes_away_does_not_make_room_for_more() {
        let passwords = PasswordHasher::new(Arc::default());
        let (release, wait) = mpsc::channel::<()>();
        let hashing = async { passwords.place().unwrap().run(move |_| wait.recv().unwrap()).await };
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), hashing).await.is_err());

        assert_eq!(passwords.places.available_permits(), PLACES - 1, "it still runs");
        release.send(()).unwrap();
        let all = passwords.places.acquire_many(PLACES as u32);
        drop(tokio::time::timeout(std::time::Duration::from_secs(20), all).await.unwrap());
    }
}
