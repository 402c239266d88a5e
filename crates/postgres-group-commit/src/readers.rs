//! Connections for reads. All requests share them, and each connection pipelines many queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select_ok;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Error, Result, ends_connection, timed_out};
use super::observer::Observer;
use super::supervisor::Supervisor;

/// A group of connections for reads. Every read may use any of them.
#[derive(Debug)]
pub struct Readers {
    pub(super) supervisors: Vec<Arc<Supervisor>>,
    /// Timeout of a read.
    pub(super) timeout: Duration,
    /// Counter for the round robin over the connections.
    turn: AtomicUsize,
    /// For reads that wait for the server.
    places: Semaphore,
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
        let (turn, places) = (AtomicUsize::new(0), Semaphore::new(max_waiting));
        Self { supervisors, timeout, turn, places, max_waiting, observer }
    }

    /// Runs a query on the next connection that is up. Retries on another one if it is lost, so the query must change nothing.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unavailable`] if too many queries wait, or after the timeout.
    pub async fn query(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let _place = self.places.try_acquire().map_err(|_| self.too_many())?;
        let began = Instant::now();
        let deadline = began + self.timeout;
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.supervisors.len();
            let (before, next) = self.supervisors.split_at(turn);
            let in_turn = next.iter().chain(before);
            let prepared = match in_turn.clone().find_map(|one| one.current()) {
                Some(prepared) => prepared,
                None => select_ok(in_turn.map(|one| Box::pin(one.connection(deadline)))).await?.0,
            };
            let (sent, rows) = (Instant::now(), prepared.query(sql, parameters));
            match timeout_at(deadline, rows).await {
                Ok(Ok(rows)) => {
                    self.observer.query(began.elapsed());
                    return Ok(rows);
                }
                Ok(Err(error)) if ends_connection(&error) => prepared.connection.discard(),
                Ok(Err(error)) => return Err(error.into()),
                // On this connection, which others share, the server had too little time.
                Err(_) if sent.elapsed() < self.timeout / 2 => return Err(timed_out(self.timeout)),
                Err(_) => return Err(prepared.connection.give_up(self.timeout)),
            }
        }
    }

    /// Counts a rejected read and returns its error.
    pub(super) fn too_many(&self) -> Error {
        self.observer.refused();
        Error::Unavailable("too many reads wait for the database".into())
    }

    /// Number of queries that wait for the server. A batch of reads is one, or a few.
    pub fn waiting(&self) -> usize {
        self.max_waiting - self.places.available_permits()
    }
}
