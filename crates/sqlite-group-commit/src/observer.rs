//! Events that a program may count.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::Instant;

/// Counts what the database does, for metrics and traces. Each method does nothing by default. The writer and the callers
/// wait for them, so they must be quick. `()` counts nothing.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait Observer: Debug + Send + Sync {
    /// The queue was full, so a write was rejected.
    fn refused(&self) {}

    /// A batch of `writes` was committed, or failed, `took` after it began.
    fn batch(&self, writes: usize, took: Duration) {}

    /// A write was acknowledged, or failed. It waited from `queued` until its batch `began`. Called on the task that
    /// submitted the write.
    fn written(&self, queued: Instant, began: Instant) {}

    /// A read took `took`. Called for one in 16 reads of a connection, because two clock readings cost as much as a tenth of
    /// a short read.
    fn read(&self, took: Duration) {}
}

impl Observer for () {}
