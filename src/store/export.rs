//! Exports, page by page. No transaction is open while a page is written out, because the reader of the output may
//! stall. An open transaction would hold the write-ahead log (SQLite) or a snapshot (PostgreSQL).

use std::io;

use postgres_group_commit::{Connection, within};

use super::postgres::{LONG, rows as postgres_rows};
use super::row::FromRow;
use super::sqlite::{Sqlite, rows};
use super::statement::{Parameters, for_postgres, for_sqlite};
use super::{Result, Store, StoreError};
use crate::domain::{MessageRecord, Pet};

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Write(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The number of exported rows, or why the export ended early.
pub type Exported = Result<u64, ExportError>;

/// Receives the animals of an export.
pub type PetSink<'a> = &'a mut (dyn FnMut(Pet<'_>) -> io::Result<()> + Send);

/// Receives the messages of an export.
pub type MessageSink<'a> = &'a mut (dyn FnMut(MessageRecord) -> io::Result<()> + Send);

/// Number of animals in a page, which take up to a megabyte.
pub const PETS: usize = 1_000;

/// Number of messages in a page, which take up to 8 megabytes.
pub const MESSAGES: usize = 200;

/// Reads the pages of an export.
pub enum PageReader<'store> {
    Sqlite(&'store Sqlite),
    Postgres(Connection),
}

impl Store {
    pub(super) async fn page_reader(&self) -> Result<PageReader<'_>> {
        Ok(match self {
            Self::Sqlite(db) => PageReader::Sqlite(db),
            Self::Postgres(db) => PageReader::Postgres(db.cluster.connection().await?),
        })
    }
}

impl PageReader<'_> {
    pub async fn all<T: FromRow>(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => db.read_once(|conn| rows::all(conn, sql, for_sqlite(parameters))),
            Self::Postgres(connection) => {
                postgres_rows::all(&within(LONG, connection.client.query(sql, &for_postgres(parameters))).await?)
            }
        }
    }
}

/// Passes every row to `each`, and stops at the first error it returns. `page` reads at most `size` rows after a key,
/// in order of their keys.
pub async fn in_pages<Row, Key>(
    size: usize,
    first: Key,
    mut page: impl AsyncFnMut(Key) -> Result<Vec<Row>>,
    key: impl Fn(&Row) -> Key,
    mut each: impl FnMut(Row) -> io::Result<()>,
) -> Exported {
    let (mut after, mut shown) = (first, 0);
    loop {
        let rows = page(after).await?;
        let last = rows.last().map(&key).filter(|_| rows.len() >= size);
        for row in rows {
            each(row)?;
            shown += 1;
        }
        match last {
            Some(last) => after = last,
            None => return Ok(shown),
        }
    }
}
