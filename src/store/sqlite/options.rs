//! Location of the database, its deployment, and its metrics.

use std::path::PathBuf;
use std::time::Duration;

pub use sqlite_group_commit::Options as DatabaseOptions;
use tokio::time::Instant;

use crate::domain::Deployment;
use crate::store::{ReaderMeter, WriterMeter};
use crate::telemetry::traces;

/// Location, deployment and limits of the database.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Opening fails if the database was created for another deployment.
    pub deployment: Option<Deployment>,
    /// Deployment of a new database if `deployment` is `None`. With `None` here, no database is created.
    pub create: Option<Deployment>,
    /// Its `create` and `observer` are ignored.
    pub database: DatabaseOptions,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let (create, database) = (Some(Deployment::Production), DatabaseOptions::default());
        Self { data_dir: data_dir.into(), deployment: None, create, database }
    }
}

/// Counts for metrics, and makes the spans of writes.
#[derive(Debug, Default)]
pub struct Observer {
    pub writer: WriterMeter,
    pub readers: ReaderMeter,
}

impl sqlite_group_commit::Observer for Observer {
    fn refused(&self) {
        self.writer.refused.increment();
    }

    fn batch(&self, writes: usize, took: Duration) {
        self.writer.batch.observe(writes as u64);
        self.writer.commit.observe_duration(took);
    }

    fn written(&self, queued: Instant, began: Instant) {
        traces::write_spans(queued, began);
    }

    fn read(&self, took: Duration) {
        self.readers.duration.observe_duration(took);
    }
}
