//! What the store counts for the operator.

use crate::telemetry::metrics::{Counter, Gauge, Histogram};

/// What a writer counts.
#[derive(Debug)]
pub struct WriterMeter {
    /// Writes that wait for a batch.
    pub queued: Gauge,
    /// Writes that were refused since too many waited.
    pub refused: Counter,
    pub batch: Histogram,
    /// From the begin of a batch to the end of its commit.
    pub commit: Histogram,
}

impl Default for WriterMeter {
    fn default() -> Self {
        Self {
            queued: Gauge::default(),
            refused: Counter::default(),
            batch: Histogram::of_sizes(),
            commit: Histogram::of_durations(),
        }
    }
}

/// What readers count.
#[derive(Debug)]
pub struct ReaderMeter {
    /// Reads that were refused since too many waited.
    pub refused: Counter,
    pub duration: Histogram,
}

impl Default for ReaderMeter {
    fn default() -> Self {
        Self { refused: Counter::default(), duration: Histogram::of_durations() }
    }
}

/// The disk that the embedded database is on, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// What this process may still write.
    pub free: u64,
    pub size: u64,
}

/// All that a store counts.
#[derive(Debug)]
pub struct Meters<'a> {
    /// By what they write.
    pub writers: Vec<(&'static str, &'a WriterMeter)>,
    pub readers: &'a ReaderMeter,
    /// Reads of the database under way.
    pub reads: i64,
    /// Of PostgreSQL: its connections by what they are for, and whether each is up.
    pub connections: Vec<(&'static str, bool)>,
}
