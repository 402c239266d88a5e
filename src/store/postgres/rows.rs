//! Reading rows.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::domain::PageLimit;
use crate::store::Result;
use crate::store::row::FromRow;
use postgres_group_commit::{Connection, within};

/// Maximum time for a long query, such as a page of an export or a count of a hundred million animals.
pub const LONG: Duration = Duration::from_secs(30);

/// Passes the rows of a page to `each` and returns whether another page follows. The query must ask for one row more
/// than `limit`.
pub fn page(rows: &[Row], limit: PageLimit, each: impl FnMut(&Row) -> Result<()>) -> Result<bool> {
    let shown = rows.len().min(usize::try_from(limit.get()).unwrap_or(usize::MAX));
    rows[..shown].iter().try_for_each(each)?;
    Ok(rows.len() > shown)
}

/// Runs a long query, on a connection that no other query uses.
pub async fn long_query(connection: &Connection, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    Ok(within(LONG, connection.client.query(sql, parameters)).await?)
}

/// Reads the first row. `None` if there is none.
pub fn first<T: FromRow>(rows: &[Row]) -> Result<Option<T>> {
    Ok(rows.first().map(T::from_row).transpose()?)
}

pub fn all<T: FromRow>(rows: &[Row]) -> Result<Vec<T>> {
    Ok(rows.iter().map(T::from_row).collect::<Result<_, _>>()?)
}
