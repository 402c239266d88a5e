//! Temporary table of animals to add. An import or a reset fills it first, and so keeps its locks only while the server
//! copies the rows.

use tokio_postgres::{Client, Error};

use crate::domain::NewPet;
use crate::store::postgres::connect::error::{describe, ends_connection, within};
use crate::store::postgres::rows::LONG;
use crate::store::{PetSource, Result, StoreError};

/// Begins a transaction and creates the table in it.
const BEGIN: &str = "BEGIN; CREATE TEMPORARY TABLE added_pets (id bigint GENERATED ALWAYS AS IDENTITY,
    name text, category_id bigint, status smallint) ON COMMIT DROP";

const FILL: &str = "INSERT INTO pg_temp.added_pets (name, category_id, status)
    SELECT name, category_id, status FROM unnest($1::text[], $2::bigint[], $3::smallint[])
        WITH ORDINALITY AS given (name, category_id, status, position)
    ORDER BY position";

pub const INSERT: &str = "INSERT INTO pets (name, category_id, status)
    SELECT name, category_id, status FROM pg_temp.added_pets ORDER BY id";

/// Number of animals in one statement.
const CHUNK: usize = 1_000;

/// Begins a transaction, and creates and fills the table in it. Returns the number of animals.
pub async fn begin(client: &Client, source: PetSource) -> Result<u64> {
    within(LONG, client.batch_execute(BEGIN)).await?;
    let fill = within(LONG, client.prepare(FILL)).await?;
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

/// Returns the parameters of a statement that inserts animals from arrays.
pub fn arrays(pets: &[NewPet]) -> (Vec<&str>, Vec<i64>, Vec<i16>) {
    pets.iter().map(|pet| (pet.name.as_str(), pet.category_id, pet.status.code())).collect()
}

/// The error of statements that end with a commit. Names `in_doubt` if they may have been committed.
pub fn failed(error: Error, in_doubt: &str) -> StoreError {
    match ends_connection(&error) {
        true => StoreError::Unavailable(format!("{}: {in_doubt} before you retry", describe(&error))),
        false => error.into(),
    }
}
