//! Reading rows.

use std::time::Duration;

use tokio_postgres::Row;

use crate::domain::PageLimit;
use crate::store::Result;
use crate::store::row::FromRow;

/// Maximum time for a long query, such as a page of an export or a count of a hundred million animals.
pub const LONG: Duration = Duration::from_secs(30);

/// Passes the rows of a page to `each` and returns whether another page follows. The query must ask for one row more
/// than `limit`.
pub fn page(rows: &[Row], limit: PageLimit, each: impl FnMut(&Row) -> Result<()>) -> Result<bool> {
    let shown = rows.len().min(usize::try_from(limit.get()).unwrap_or(usize::MAX));
    rows[..shown].iter().try_for_each(each)?;
    Ok(rows.len() > shown)
}

pub fn all<T: FromRow>(rows: &[Row]) -> Result<Vec<T>> {
    Ok(rows.iter().map(T::from_row).collect::<Result<_, _>>()?)
}
