//! Reading rows.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::domain::PageLimit;
use crate::store::Result;
use crate::store::row::FromRow;

/// Returns the first row. `None` if there is none.
pub fn first<T: FromRow>(conn: &Connection, sql: &str, params: impl Params) -> Result<Option<T>> {
    Ok(conn.prepare_cached(sql)?.query_row(params, |row| T::from_row(row)).optional()?)
}

pub fn all<T: FromRow>(conn: &Connection, sql: &str, params: impl Params) -> Result<Vec<T>> {
    Ok(conn.prepare_cached(sql)?.query_map(params, |row| T::from_row(row))?.collect::<rusqlite::Result<_>>()?)
}

/// Passes at most `limit` rows to `each`. Returns whether another row follows, so the query must ask for one row more.
pub fn page(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    limit: PageLimit,
    mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<bool> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    for _ in 0..limit.get() {
        let Some(row) = rows.next()? else { return Ok(false) };
        each(row)?;
    }
    Ok(rows.next()?.is_some())
}
