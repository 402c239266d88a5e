//! How many animals there are, for the overview.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::domain::StatusCounts;
use crate::store::{self, Store};

/// How much longer than counting took its result is shown: counting takes at most a hundredth of one core.
const KEPT: u32 = 100;

/// The last counts, and until when they are shown. In a small store that is no time at all.
#[derive(Debug, Default)]
pub struct Counts(Arc<Mutex<Option<(StatusCounts, Instant)>>>);

impl Counts {
    /// Counts on a thread of its own, since it may take long, and one count at a time: who goes away meanwhile leaves it
    /// to those who come, and starts no second one by coming back.
    pub async fn get(&self, store: &Arc<Store>) -> store::Result<StatusCounts> {
        let mut kept = Arc::clone(&self.0).lock_owned().await;
        if let Some((counts, until)) = *kept
            && Instant::now() < until
        {
            return Ok(counts);
        }
        let (store, runtime) = (Arc::clone(store), tokio::runtime::Handle::current());
        let counting = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let counts = runtime.block_on(store.count_pets_by_status())?;
            let took = began.elapsed();
            // Small stores are counted anew each time, so that what was just added is there.
            let shown = if took < Duration::from_millis(50) { Duration::ZERO } else { took * KEPT };
            *kept = Some((counts, began + shown));
            Ok(counts)
        });
        counting.await.expect("counting does not panic")
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn a_count_that_nobody_waits_for_any_more_is_kept_and_not_joined_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap()));
        let counts = Counts::default();
        {
            let mut asked = std::pin::pin!(counts.get(&store));
            let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        // Whoever comes waits for the one that goes on, and finds what it has found.
        assert!(counts.0.lock().await.is_some());
    }
}
