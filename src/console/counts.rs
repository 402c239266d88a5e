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
pub struct Counts(Mutex<Option<(StatusCounts, Instant)>>);

impl Counts {
    /// Counts on a thread of its own, since it may take long, and one count at a time.
    pub async fn get(&self, store: &Arc<Store>) -> store::Result<StatusCounts> {
        let mut kept = self.0.lock().await;
        if let Some((counts, until)) = *kept
            && Instant::now() < until
        {
            return Ok(counts);
        }
        let began = Instant::now();
        let (store, runtime) = (Arc::clone(store), tokio::runtime::Handle::current());
        let counting = tokio::task::spawn_blocking(move || runtime.block_on(store.count_pets_by_status()));
        let counts = counting.await.expect("counting does not panic")?;
        let took = began.elapsed();
        // Small stores are counted anew each time, so that what was just added is there.
        let shown = if took < Duration::from_millis(50) { Duration::ZERO } else { took * KEPT };
        *kept = Some((counts, began + shown));
        Ok(counts)
    }
}
