//! Reading a page of rows.

use rusqlite::{Row, Rows};

use crate::domain::PageLimit;
use crate::store::Result;

/// Passes at most `limit` rows to `each`. Returns whether another row follows.
pub fn show(
    rows: &mut Rows<'_>,
    limit: PageLimit,
    mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<bool> {
    for _ in 0..limit.get() {
        match rows.next()? {
            Some(row) => each(row)?,
            None => return Ok(false),
        }
    }
    Ok(rows.next()?.is_some())
}
