//! Counts requests, so that a part of them gets a simulated failure.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;

use crate::api::operations::Operation;
use crate::domain::{AccountId, KeyId};

/// Maximum number of counters. If more keys are in use, the count of a rare one may begin again.
const COUNTERS: usize = 10_000;

/// The requests that share a counter: those of an account and a key (`None` for a user of the console), to one operation
/// (`None` for all). With `first`, the number of resets before them too, so that a reset begins another count.
pub type Counted = (AccountId, Option<KeyId>, Option<Operation>, Option<i64>);

/// Counters of the requests that `rate`, `every` and `first` choose from, since the start of the process.
#[derive(Debug)]
pub struct Simulator(Cache<Counted, Arc<AtomicU64>>);

impl Simulator {
    pub fn new() -> Self {
        Self(Cache::new(COUNTERS))
    }

    /// Counts a request. Returns the number of earlier ones.
    pub fn count(&self, counted: Counted) -> u64 {
        let Ok(earlier) = self.0.get_or_insert_with(&counted, || Ok::<_, Infallible>(Arc::default()));
        earlier.fetch_add(1, Ordering::Relaxed)
    }
}
