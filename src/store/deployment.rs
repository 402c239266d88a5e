//! The deployment that a database was made for, which it keeps.

use super::{Result, StoreError};
use crate::domain::Deployment;

/// What the database says that it is.
pub fn parse(kept: &str) -> Result<Deployment> {
    Deployment::parse(kept)
        .ok_or_else(|| StoreError::Failed(format!("the database's deployment is {kept:?}, which is unknown")))
}

/// The one that is kept, unless another is asked for.
pub fn agree(kept: Deployment, asked: Option<Deployment>) -> Result<Deployment> {
    match asked {
        Some(asked) if asked != kept => {
            Err(StoreError::Failed(format!("the database is a {kept} one and can't be opened as {asked}")))
        }
        _ => Ok(kept),
    }
}
