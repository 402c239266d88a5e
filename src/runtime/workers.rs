//! The runtime that uses the store.
//!
//! Short database reads run on its threads, so a disk that does not respond may block all of them. The main thread handles
//! signals, the shutdown and the operations listener, and leaves every use of the store to the workers.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum time that a health check waits for the store. Longer than PostgreSQL's own check takes, and below a second,
/// because probes often give up after that time.
const CHECK_TIMEOUT: Duration = Duration::from_millis(850);

/// Maximum number of checks in progress. If the disk does not respond, further ones fail without blocking a thread.
const CHECKS: usize = 16;

/// The runtime that uses the store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers {
    pub runtime: Handle,
    checks: Arc<Semaphore>,
}

impl Workers {
    /// Returns the runtime of the caller.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    pub fn current() -> Self {
        Self { runtime: Handle::current(), checks: Arc::new(Semaphore::new(CHECKS)) }
    }

    /// Runs `check`, which may block its thread.
    ///
    /// # Errors
    ///
    /// Fails if `check` does not end in time, or panics.
    pub async fn check<T: Send + 'static>(&self, check: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
        let checked = async {
            let permit = Arc::clone(&self.checks).acquire_owned().await;
            let check = self.runtime.spawn(async move {
                let checked = check.await;
                drop(permit);
                checked
            });
            check.await.map_err(|error| error.to_string())
        };
        timeout(CHECK_TIMEOUT, checked)
            .await
            .unwrap_or_else(|_| Err(format!("the database did not respond within {CHECK_TIMEOUT:?}")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn blocked_workers_fail_checks_in_time_and_recover() {
        let blocked = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let workers = Workers { runtime: blocked.handle().clone(), ..Workers::current() };
        let (end, ended) = mpsc::channel::<()>();
        workers.runtime.spawn(async move { ended.recv() });
        let checked = join_all((0..=CHECKS).map(|_| workers.check(async {}))).await;
        assert!(checked.iter().all(|late| *late == Err("the database did not respond within 850ms".into())));
        drop(end);
        testkit::until(async || workers.check(async { 1 }).await == Ok(1)).await;
        blocked.shutdown_background();
    }
}
