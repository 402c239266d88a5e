//! The deployment that a database was created for and the store's id, which it stores.

use super::statement::{Sql, both};
use super::{Result, StoreError};
use crate::domain::Deployment;

/// Stores the deployment. Part of the first migration's transaction, because a process may be killed after it.
pub const INSERT: Sql = both("INSERT INTO meta (key, value) VALUES ('deployment', $1)");

pub const FIND: &str = "SELECT value FROM meta WHERE key = 'deployment'";

/// Selects the store's id, which a backup and a store that was moved to PostgreSQL keep.
pub const FIND_ID: &str = "SELECT value FROM meta WHERE key = 'store_id'";

/// Returns a stored id. It is empty if somebody removed or changed it.
pub fn id(stored: Option<String>) -> String {
    stored.filter(|id| id.bytes().all(|digit| digit.is_ascii_hexdigit())).unwrap_or_default()
}

/// Parses a stored deployment. Fails if it is not `expected`.
pub fn check(stored: Option<&str>, expected: Option<Deployment>) -> Result<Deployment> {
    let stored = stored.ok_or_else(|| StoreError::Failed("the database was never completed".into()))?;
    let stored = Deployment::parse(stored)
        .map_err(|_| StoreError::Failed(format!("the database's deployment is {stored:?}, which is unknown")))?;
    match expected {
        Some(expected) if expected != stored => {
            Err(StoreError::Failed(format!("the database is a {stored} one and cannot be opened as {expected}")))
        }
        _ => Ok(stored),
    }
}
