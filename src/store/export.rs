//! Exports: page by page, so that no transaction is open while a page is written out. Whoever reads the output may stall, and
//! a transaction that is open holds the write-ahead log (SQLite) or a snapshot (PostgreSQL).

use std::io;

use super::Result;

/// How many animals make a page: up to a megabyte.
pub const PETS: usize = 1_000;

/// How many messages make a page: up to 8 megabytes.
pub const MESSAGES: usize = 200;

/// Passes every row to `each`, until that fails. `page` reads the rows that follow a key, in order of their keys, and at most
/// `size` of them.
pub async fn in_pages<Row, Key>(
    size: usize,
    first: Key,
    mut page: impl AsyncFnMut(Key) -> Result<Vec<Row>>,
    key: impl Fn(&Row) -> Key,
    mut each: impl FnMut(Row) -> io::Result<()>,
) -> Result<io::Result<u64>> {
    let (mut after, mut shown) = (first, 0);
    loop {
        let rows = page(after).await?;
        let last = rows.last().map(&key).filter(|_| rows.len() >= size);
        for row in rows {
            if let Err(error) = each(row) {
                return Ok(Err(error));
            }
            shown += 1;
        }
        match last {
            Some(last) => after = last,
            None => return Ok(Ok(shown)),
        }
    }
}
