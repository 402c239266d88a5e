//! Events that a program may count.

use std::fmt::Debug;
use std::time::Duration;

/// Counts what a queue or a group of readers does, for metrics. Each method does nothing by default. They run between
/// queries, so they must be quick. `()` counts nothing.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait Observer: Debug + Send + Sync {
    /// Too many writes or reads waited, so one was rejected.
    fn refused(&self) {}

    /// A batch of `writes` was committed, or failed, `took` after it began.
    fn batch(&self, writes: usize, took: Duration) {}

    /// A query was answered `took` after it was requested.
    fn query(&self, took: Duration) {}
}

impl Observer for () {}
