//! Temporary table of animals to add. An import or a reset fills it first, and so keeps its locks only while the server
//! copies the rows.

use tokio_postgres::{Client, Error};

use super::postgres::{BEGIN_ADDING, FILL_ADDED, arrays};
use crate::store::postgres::error::{describe, ends_connection, within};
use crate::store::postgres::rows::LONG;
use crate::store::{PetSource, Result, StoreError};

/// Number of animals in one statement.
const CHUNK: usize = 1_000;

/// Begins a transaction, and creates and fills the table in it. Returns the number of animals.
pub async fn begin(client: &Client, source: PetSource) -> Result<u64> {
    within(LONG, client.batch_execute(BEGIN_ADDING)).await?;
    let fill = within(LONG, client.prepare(FILL_ADDED)).await?;
    let (mut source, mut count) = (source.fuse(), 0);
    loop {
        let chunk: Vec<_> =
            source.by_ref().take(CHUNK).collect::<std::result::Result<_, _>>().map_err(StoreError::Refused)?;
        if chunk.is_empty() {
            return Ok(count);
        }
        let (names, categories, statuses) = arrays(&chunk);
        count += within(LONG, client.execute(&fill, &[&names, &categories, &statuses])).await?;
    }
}

/// The error of statements that end with a commit. Names `in_doubt` if they may have been committed.
pub fn failed(error: Error, in_doubt: &str) -> StoreError {
    match ends_connection(&error) {
        true => StoreError::Unavailable(format!("{}: {in_doubt} before you retry", describe(&error))),
        false => error.into(),
    }
}
