//! Rows of either database, and the results that are read from them.
//!
//! A statement that both databases share numbers its parameters in the order of their first use, because SQLite numbers
//! `$1` and `$2` that way.

/// A row of SQLite or PostgreSQL.
pub trait Row {
    type Error;

    /// Decodes the column at `index`, from 0.
    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error>;
}

/// A result with a row. The statements of both databases return its columns in the same order. Animals have no such
/// constructor, because they borrow their names from the row.
pub trait FromRow: Sized {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error>;
}

/// A type of a column.
pub trait Column: rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a> {}

impl<T: rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a>> Column for T {}

impl Row for rusqlite::Row<'_> {
    type Error = rusqlite::Error;

    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error> {
        self.get(index)
    }
}

impl Row for tokio_postgres::Row {
    type Error = tokio_postgres::Error;

    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error> {
        self.try_get(index)
    }
}
