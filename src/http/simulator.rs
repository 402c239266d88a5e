//! The state of a service that simulates failures.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use quick_cache::sync::Cache;

use super::documented_errors::DocumentedErrors;
use super::operations::Operation;
use crate::domain::{AccountId, KeyId};

/// Maximum number of counters. If more keys are in use, the count of a rare one may begin again.
const COUNTERS: usize = 10_000;

/// The requests that share a counter: those of one key, or of a user of the console, and perhaps of one operation.
pub type Counted = (AccountId, Option<KeyId>, Option<Operation>);

#[derive(Debug)]
pub struct Simulator {
    /// The errors that clients may ask for. Parsed at the first use.
    pub errors: LazyLock<DocumentedErrors>,
    /// Requests with `rate` or `every` since the start.
    requests: Cache<Counted, Arc<AtomicU64>>,
}

impl Simulator {
    pub fn new() -> Self {
        Self { errors: LazyLock::new(DocumentedErrors::new), requests: Cache::new(COUNTERS) }
    }

    /// Counts a request. Returns the number of those before it.
    pub fn count(&self, counted: &Counted) -> u64 {
        let Ok(requests) = self.requests.get_or_insert_with(counted, || Ok::<_, Infallible>(Arc::default()));
        requests.fetch_add(1, Ordering::Relaxed)
    }
}
