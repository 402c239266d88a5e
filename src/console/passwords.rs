//! Hashing and checking passwords: dear on purpose, and so never on an async worker and never many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tokio::sync::{Semaphore, oneshot};

use crate::domain::Secret;
use crate::domain::account::{NewPassword, PasswordDigest};

/// How many may wait or run; further ones are refused at once, so that a flood of sign-ins stays small.
const PLACES: usize = 32;

/// How far a thread that hashes stands back behind those of the API (nice(2)): with both at work on one core, it gets a
/// quarter of it. On Linux this is a thread's own, and not the process's.
const POLITENESS: i32 = 5;

#[derive(Debug)]
pub struct Passwords {
    places: Semaphore,
    /// At most every second core hashes, so that the API keeps the others.
    running: Arc<Semaphore>,
    hashed: AtomicU64,
}

/// Too many passwords are being hashed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl Passwords {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            places: Semaphore::new(PLACES),
            running: Arc::new(Semaphore::new((cores / 2).max(1))),
            hashed: AtomicU64::new(0),
        }
    }

    /// How many passwords were hashed or checked so far.
    pub fn count(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
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
        let _place = self.places.try_acquire().map_err(|_| Busy)?;
        self.hashed.fetch_add(1, Ordering::Relaxed);
        let permit = Arc::clone(&self.running).acquire_owned().await.expect("the semaphore is never closed");
        let (answer, hashed) = oneshot::channel();
        // A thread of its own, since it never gets its priority back. The permit goes along: a client that goes away
        // does not stop the hashing, and must not make room for more.
        let hashing = thread::Builder::new().name("password".into()).spawn(move || {
            let _permit = permit;
            // Where it fails, hashing is only less polite.
            let _ = rustix::process::nice(POLITENESS);
            // Whoever asked may have gone away.
            let _ = answer.send(work());
        });
        hashing.map_err(|_| Busy)?;
        Ok(hashed.await.expect("hashing does not panic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_refused_beyond_the_places_there_are() {
        let passwords = Arc::new(Passwords::new());
        let hold = Arc::clone(&passwords.running).acquire_many_owned(passwords.running.available_permits() as u32);
        let hold = hold.await.unwrap();
        let waiting: Vec<_> = (0..PLACES)
            .map(|_| {
                let passwords = Arc::clone(&passwords);
                tokio::spawn(async move { passwords.run(|| ()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(passwords.run(|| ()).await, Err(Busy));

        drop(hold);
        for one in waiting {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert_eq!(passwords.run(|| ()).await, Ok(()));
    }

    #[tokio::test]
    async fn who_goes_away_does_not_make_room_for_more() {
        let passwords = Passwords::new();
        let free = passwords.running.available_permits();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let hashing = passwords.run(move || wait.recv().unwrap());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), hashing).await.is_err());

        assert_eq!(passwords.running.available_permits(), free - 1, "it still runs");
        release.send(()).unwrap();
        let all = u32::try_from(free).unwrap();
        drop(
            tokio::time::timeout(std::time::Duration::from_secs(20), passwords.running.acquire_many(all))
                .await
                .unwrap(),
        );
    }
}
