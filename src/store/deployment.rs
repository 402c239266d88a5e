//! The deployment that a database was created for, which it stores.

use super::{Result, StoreError};
use crate::domain::Deployment;

/// Stores the deployment. Part of the first migration's transaction, because a process may be killed after it.
pub const INSERT: &str = "INSERT INTO meta (key, value) VALUES ('deployment', $1)";

pub const FIND: &str = "SELECT value FROM meta WHERE key = 'deployment'";

/// Parses a stored deployment. Fails if it is not `expected`.
pub fn check(stored: Option<&str>, expected: Option<Deployment>) -> Result<Deployment> {
    let stored = stored.ok_or_else(|| StoreError::Failed("the database was never completed".into()))?;
    let stored = Deployment::parse(stored)
        .ok_or_else(|| StoreError::Failed(format!("the database's deployment is {stored:?}, which is unknown")))?;
    match expected {
        Some(expected) if expected != stored => {
            Err(StoreError::Failed(format!("the database is a {stored} one and cannot be opened as {expected}")))
        }
        _ => Ok(stored),
    }
}
