//! The deployment that a database was created for and the store's id, which it stores.

use super::statement::{Sql, both};
use super::transaction::Transaction;
use super::{Result, StoreError};
use crate::domain::Deployment;

/// Stores the deployment. Part of the first migration's transaction, because a process may be killed after it.
pub const INSERT: Sql = both("INSERT INTO meta (key, value) VALUES ('deployment', $1)");

/// Returns the store's id, which a backup and a store that was moved to PostgreSQL keep. It is empty if somebody removed or
/// changed it.
pub async fn id(tx: &impl Transaction) -> Result<String> {
    let stored: Option<(String,)> = tx.first(both("SELECT value FROM meta WHERE key = 'store_id'"), &[]).await?;
    let id = stored.map(|(id,)| id).filter(|id| id.bytes().all(|digit| digit.is_ascii_hexdigit()));
    Ok(id.unwrap_or_default())
}

/// Returns the deployment that the database was created for. Fails if it is not `expected`.
pub async fn stored(tx: &impl Transaction, expected: Option<Deployment>) -> Result<Deployment> {
    let stored: Option<(String,)> = tx.first(both("SELECT value FROM meta WHERE key = 'deployment'"), &[]).await?;
    let (stored,) = stored.ok_or_else(|| StoreError::Failed("the database was never completed".into()))?;
    let stored = Deployment::parse(&stored)
        .map_err(|_| StoreError::Failed(format!("the database's deployment is {stored:?}, which is unknown")))?;
    match expected {
        Some(expected) if expected != stored => {
            Err(StoreError::Failed(format!("the database is a {stored} one and cannot be opened as {expected}")))
        }
        _ => Ok(stored),
    }
}
