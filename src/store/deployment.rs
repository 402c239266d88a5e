//! The deployment that a database was created for, which it stores.

use super::{Result, StoreError};
use crate::domain::Deployment;

/// Parses a stored deployment. Fails if it is not `expected`.
pub fn check(stored: &str, expected: Option<Deployment>) -> Result<Deployment> {
    let stored = Deployment::parse(stored)
        .ok_or_else(|| StoreError::Failed(format!("the database's deployment is {stored:?}, which is unknown")))?;
    match expected {
        Some(expected) if expected != stored => {
            Err(StoreError::Failed(format!("the database is a {stored} one and cannot be opened as {expected}")))
        }
        _ => Ok(stored),
    }
}
