//! Connections for reads. All requests share them, and each connection pipelines many queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::error::{ends_connection, timed_out};
use super::connections::Connections;
use super::supervisor::Supervisor;
use crate::store::{ReaderMeter, Result, StoreError};
use crate::telemetry::metrics::Gauge;

#[derive(Debug)]
pub struct Readers {
    supervisors: Vec<Arc<Supervisor>>,
    /// Timeout of a read.
    pub timeout: Duration,
    /// Counter for the round robin over the connections.
    turn: AtomicUsize,
    /// Reads waiting for the server.
    waiting: Gauge,
    max_waiting: usize,
    meter: Arc<ReaderMeter>,
}

impl Readers {
    /// Opens the connections. The log calls them `name`.
    pub async fn open(
        connections: &Connections,
        count: usize,
        max_waiting: usize,
        meter: &Arc<ReaderMeter>,
        statements: &[&'static str],
        name: &'static str,
    ) -> Result<Self> {
        let supervisors = (0..count).map(|_| connections.open(statements, name));
        let supervisors = futures_util::future::try_join_all(supervisors).await?;
        Ok(Self {
            supervisors,
            timeout: connections.connector.limits().operation(),
            turn: AtomicUsize::new(0),
            waiting: Gauge::default(),
            max_waiting,
            meter: Arc::clone(meter),
        })
    }

    /// Runs a query on the next connection that is up. Retries on another one if it is lost.
    pub async fn query(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let _one = self.waiting.one_of(self.max_waiting).ok_or_else(|| self.too_many())?;
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
                    self.meter.duration.observe_duration(began.elapsed());
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
    pub fn too_many(&self) -> StoreError {
        self.meter.refused.increment();
        StoreError::Unavailable("too many reads wait for the database".into())
    }

    pub fn meter(&self) -> &ReaderMeter {
        &self.meter
    }

    pub fn waiting(&self) -> i64 {
        self.waiting.get()
    }

    /// Number of connections.
    pub const fn count(&self) -> usize {
        self.supervisors.len()
    }
}
