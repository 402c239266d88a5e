//! Rows: a page of them, and those of a statement that may go on for long, one by one, on a connection of its own.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;
use tokio_postgres::{Row, RowStream};

use super::session::{Connection, silent};
use crate::domain::PageLimit;
use crate::store::Result;

/// For the next row to come.
const NEXT: Duration = Duration::from_secs(30);

pub struct LongRows(Pin<Box<RowStream>>);

/// Shows `each` the rows of a page, of which one more than its limit was asked for: returns whether that one is there.
pub fn show(rows: &[Row], limit: PageLimit, each: impl FnMut(&Row) -> Result<()>) -> Result<bool> {
    let shown = rows.len().min(usize::try_from(limit.get()).unwrap_or(usize::MAX));
    rows[..shown].iter().try_for_each(each)?;
    Ok(rows.len() > shown)
}

/// Asks for all rows at once; they are sent as fast as they are taken, so memory stays bounded.
pub async fn long_rows(connection: &Connection, sql: &str) -> Result<LongRows> {
    let none: [&str; 0] = [];
    let rows = timeout(NEXT, connection.client.query_raw(sql, none)).await.map_err(|_| silent(NEXT))??;
    Ok(LongRows(Box::pin(rows)))
}

impl LongRows {
    pub async fn next(&mut self) -> Result<Option<Row>> {
        let row = timeout(NEXT, self.0.next()).await.map_err(|_| silent(NEXT))?;
        Ok(row.transpose()?)
    }
}
