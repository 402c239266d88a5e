//! Writes without a batch.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::Result;
use super::supervisor::Supervisor;

/// A connection for writes of one statement that are too rare for a batch. They share it.
#[derive(Debug)]
pub struct SingleWrites(pub(super) Arc<Supervisor>);

impl SingleWrites {
    /// Runs a statement and waits for its commit. Once it is sent, it is carried out even if the caller stops waiting.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unknown`](crate::Error::Unknown) if the statement may have been carried out.
    pub async fn write(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.0.write(async |prepared| prepared.query(sql, parameters).await).await
    }
}
