//! Rows of a page, and rows of long queries.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::Connection;
use super::error::timed_out;
use crate::domain::PageLimit;
use crate::store::Result;

/// Maximum time for a long query, such as a page of an export.
const LONG: Duration = Duration::from_secs(30);

/// Passes the rows of a page to `each` and returns whether another page follows. The query must ask for one row more
/// than `limit`.
pub fn show(rows: &[Row], limit: PageLimit, each: impl FnMut(&Row) -> Result<()>) -> Result<bool> {
    let shown = rows.len().min(usize::try_from(limit.get()).unwrap_or(usize::MAX));
    rows[..shown].iter().try_for_each(each)?;
    Ok(rows.len() > shown)
}

/// Runs a long query, on a connection that no other query uses.
pub async fn long_query(connection: &Connection, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    let rows = timeout(LONG, connection.client.query(sql, parameters)).await;
    Ok(rows.map_err(|_| timed_out(LONG))??)
}
