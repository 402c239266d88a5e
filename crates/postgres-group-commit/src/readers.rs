//! Connections for reads. All requests share them, and each connection pipelines many queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Error, Result, ends_connection, timed_out};
use super::observer::Observer;
use super::supervisor::Supervisor;

/// A group of connections for reads. Every read may use any of them.
#[derive(Debug)]
pub struct Readers {
    supervisors: Vec<Arc<Supervisor>>,
    /// Timeout of a read.
    pub(super) timeout: Duration,
    /// Counter for the round robin over the connections.
    turn: AtomicUsize,
    /// Reads waiting for the server.
    waiting: AtomicUsize,
    pub(super) max_waiting: usize,
    observer: Arc<dyn Observer>,
}

impl Readers {
    pub(super) fn new(
        supervisors: Vec<Arc<Supervisor>>,
        timeout: Duration,
        max_waiting: usize,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { supervisors, timeout, turn: AtomicUsize::new(0), waiting: AtomicUsize::new(0), max_waiting, observer }
    }

    /// Runs a query on the next connection that is up. Retries on another one if it is lost, so the query must change nothing.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unavailable`] if too many queries wait, or after the timeout.
    pub async fn query(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let _place = self.place().ok_or_else(|| self.too_many())?;
        let began = Instant::now();
        let deadline = began + self.timeout;
        let mut refused = 0;
        loop {
            let (next, rest) = self.in_turn();
            let prepared = match next.iter().chain(rest).find_map(|one| one.current()) {
                Some(prepared) => prepared,
                None => match next[0].connection(deadline).await {
                    Ok(prepared) => prepared,
                    Err(_) if refused + 1 < self.supervisors.len() => {
                        refused += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            let rows = prepared.query(sql, parameters);
            match timeout_at(deadline, rows).await {
                Ok(Ok(rows)) => {
                    self.observer.query(began.elapsed());
                    return Ok(rows);
                }
                Ok(Err(error)) if ends_connection(&error) => prepared.connection.discard(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    prepared.connection.discard();
                    return Err(timed_out(self.timeout));
                }
            }
        }
    }

    /// Returns the connections from the next one on, and those before it.
    fn in_turn(&self) -> (&[Arc<Supervisor>], &[Arc<Supervisor>]) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.supervisors.len();
        let (before, next) = self.supervisors.split_at(turn);
        (next, before)
    }

    /// Counts a rejected read and returns its error.
    pub(super) fn too_many(&self) -> Error {
        self.observer.refused();
        Error::Unavailable("too many reads wait for the database".into())
    }

    /// Occupies a place among the waiting queries until it is dropped. `None` if all are taken.
    fn place(&self) -> Option<Place<'_>> {
        let place = Place(&self.waiting);
        (self.waiting.fetch_add(1, Ordering::Relaxed) < self.max_waiting).then_some(place)
    }

    /// Number of queries that wait for the server. A batch of reads is one, or a few.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of connections.
    pub(super) const fn count(&self) -> usize {
        self.supervisors.len()
    }
}

struct Place<'readers>(&'readers AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
