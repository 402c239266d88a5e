//! The number of animals of each status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::domain::StatusCounts;
use crate::store::{self, Store, StoreError};

/// Lifetime of a count, as a multiple of the time that it took, and its limit, because that may be the time of an outage.
/// Counting takes at most 1 % of one core if one count takes up to 0.6 s.
const KEPT: u32 = 100;
const KEPT_LIMIT: Duration = Duration::from_mins(1);

/// Maximum time that a caller waits for another's count.
const WAIT: Duration = Duration::from_secs(30);

/// The last counts.
#[derive(Debug, Default)]
pub struct PetCounts(Arc<Mutex<Option<Kept>>>);

#[derive(Debug)]
struct Kept {
    counts: StatusCounts,
    /// In a small store, counts expire at once.
    until: Instant,
    /// Number of resets before the count. A later reset makes it outdated at once.
    resets: i64,
}

impl PetCounts {
    /// Returns counts that are at most a minute old. Counts in a task of its own, because counting may take long. Only one
    /// count runs at a time. If its caller goes away, later callers get the result, so reloading the page starts no second one.
    pub async fn recent(&self, store: &Arc<Store>) -> store::Result<StatusCounts> {
        let lock = timeout(WAIT, Arc::clone(&self.0).lock_owned()).await;
        let mut kept = lock.map_err(|_| StoreError::Unavailable(format!("no count of the animals within {WAIT:?}")))?;
        if let Some(Kept { counts, until, resets }) = *kept
            && Instant::now() < until
            && store.resets().await? == resets
        {
            return Ok(counts);
        }
        let store = Arc::clone(store);
        let counting = tokio::spawn(async move {
            let began = Instant::now();
            let (resets, counts) = (store.resets().await?, store.count_pets_by_status().await?);
            let took = began.elapsed();
            // Small stores are counted each time, so that new animals show at once.
            let shown = if took < Duration::from_millis(50) { Duration::ZERO } else { (took * KEPT).min(KEPT_LIMIT) };
            *kept = Some(Kept { counts, until: Instant::now() + shown, resets });
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
    use crate::domain::{Actor, Deployment, Timestamp};
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn abandoned_count_is_kept_for_later_callers() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap()));
        let counts = PetCounts::default();
        {
            let mut asked = std::pin::pin!(counts.recent(&store));
            let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        // The lock is released when the abandoned count has stored its result.
        assert!(counts.0.lock().await.is_some());
    }

    #[tokio::test]
    async fn kept_count_ends_at_a_reset() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { deployment: Some(Deployment::Staging), ..Options::new(folder.path()) };
        let store = Arc::new(Store::Sqlite(Sqlite::open(&options).unwrap()));
        let counts = PetCounts::default();
        let million = [0, 0, 1_000_000];
        let until = Instant::now() + Duration::from_hours(1);
        *counts.0.lock().await = Some(Kept { counts: million, until, resets: 0 });
        assert_eq!(counts.recent(&store).await.unwrap(), million);

        let actor = Actor::command_line(Timestamp::from_milliseconds(0));
        store.reset(Box::new(std::iter::empty()), actor, || false).await.unwrap();

        assert_eq!(counts.recent(&store).await.unwrap(), StatusCounts::default());
    }

    #[tokio::test(start_paused = true)]
    async fn count_of_another_is_not_waited_for_without_limit() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap()));
        let counts = PetCounts::default();
        let _counting = counts.0.lock().await;
        assert!(matches!(counts.recent(&store).await, Err(StoreError::Unavailable(_))));
    }
}
