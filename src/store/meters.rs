//! The store's metrics.

use crate::telemetry::metrics::{Counter, Histogram};

#[derive(Debug)]
pub struct WriterMeter {
    /// Writes rejected because the queue was full.
    pub refused: Counter,
    pub batch: Histogram,
    /// Time from the start of a batch to the end of its commit.
    pub commit: Histogram,
}

impl Default for WriterMeter {
    fn default() -> Self {
        Self { refused: Counter::default(), batch: Histogram::of_sizes(), commit: Histogram::default() }
    }
}

#[derive(Debug, Default)]
pub struct ReaderMeter {
    /// Reads rejected because too many were waiting.
    pub refused: Counter,
    pub duration: Histogram,
}

/// The file system of the embedded database, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Space available to this process.
    pub free: u64,
    pub size: u64,
}

#[derive(Debug)]
pub struct Meters<'a> {
    /// Each writer with the kind of its writes and the number that wait.
    pub writers: Vec<(&'static str, &'a WriterMeter, i64)>,
    pub readers: &'a ReaderMeter,
    pub reads: i64,
    /// PostgreSQL connections: the purpose of each, and whether it is up.
    pub connections: Vec<(&'static str, bool)>,
    /// Standbys that a commit on PostgreSQL waits for, and those that are connected.
    pub standbys: [i64; 2],
}
