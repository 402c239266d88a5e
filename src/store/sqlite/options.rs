//! Location and limits of the database, and its metrics.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::Deployment;
use crate::store::{ReaderMeter, WriterMeter};
use crate::telemetry::traces;

/// Location and limits of the database. The limits are those of [`sqlite_group_commit::Options`].
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Opening fails if the database was created for another deployment.
    pub deployment: Option<Deployment>,
    /// Deployment of a new database if `deployment` is `None`. With `None` here, no database is created.
    pub create: Option<Deployment>,
    pub durable: bool,
    pub queue: usize,
    pub readers: usize,
    pub busy_timeout: Duration,
    pub checkpoint_pages: u32,
    pub wal_pages: u32,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let sqlite_group_commit::Options { durable, queue, readers, busy_timeout, checkpoint_pages, wal_pages, .. } =
            Default::default();
        let (data_dir, create) = (data_dir.into(), Some(Deployment::Production));
        Self { data_dir, deployment: None, create, durable, queue, readers, busy_timeout, checkpoint_pages, wal_pages }
    }

    pub(super) fn of_database(&self, observer: Arc<dyn sqlite_group_commit::Observer>) -> sqlite_group_commit::Options {
        let Self { durable, queue, readers, busy_timeout, checkpoint_pages, wal_pages, .. } = *self;
        let create = self.create.is_some();
        sqlite_group_commit::Options {
            create,
            durable,
            queue,
            readers,
            busy_timeout,
            checkpoint_pages,
            wal_pages,
            observer,
        }
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
