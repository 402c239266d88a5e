//! Temporary table of animals to add, filled before the transaction that adds them. An import or a reset therefore keeps
//! its locks only while the server copies the rows.

use tokio_postgres::Client;

use super::pets::arrays;
use crate::store::{PetSource, Result, StoreError};

/// Its ids count from 1. A column that a newer version has added gets its default.
const CREATE: &str = "CREATE TEMPORARY TABLE added_pets (LIKE pets INCLUDING IDENTITY INCLUDING DEFAULTS)";

const FILL: &str = "INSERT INTO pg_temp.added_pets (name, category_id, status)
    SELECT name, category_id, status FROM unnest($1::text[], $2::bigint[], $3::smallint[])
        WITH ORDINALITY AS given (name, category_id, status, position)
    ORDER BY position";

/// Number of animals in one statement.
const CHUNK: usize = 1_000;

/// Creates and fills the table. It disappears with the connection.
pub async fn fill(client: &Client, source: PetSource) -> Result<()> {
    client.batch_execute(CREATE).await?;
    let fill = client.prepare(FILL).await?;
    let mut source = source.fuse();
    loop {
        let chunk: Vec<_> =
            source.by_ref().take(CHUNK).collect::<std::result::Result<_, _>>().map_err(StoreError::Refused)?;
        if chunk.is_empty() {
            return Ok(());
        }
        let (names, categories, statuses) = arrays(&chunk);
        client.execute(&fill, &[&names, &categories, &statuses]).await?;
    }
}
