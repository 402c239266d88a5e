//! Rows of either database, and the results that are read from them.
//!
//! A statement that both databases share numbers its parameters in the order of their first use, because SQLite numbers
//! `$1` and `$2` that way.

use std::error::Error;

use rusqlite::types::{FromSqlError, FromSqlResult, ValueRef};
use tokio_postgres::types::{Type, accepts};

use crate::domain::{
    AccountId, Email, Invalid, KeyId, MessageId, MessageText, OrderStatus, PetStatus, Role, SessionHash, Timestamp,
};

/// A row of SQLite or PostgreSQL.
pub trait Row {
    type Error;

    /// Decodes the column at `index`, from 0.
    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error>;
}

/// A result with a row. The statements of both databases return its columns in the same order. Most are declared
/// with `from_row!`. Animals have none, because they borrow their names from the row.
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

/// Makes a type readable from a column of either database, which both drivers read as a `$raw`. A function cannot implement
/// the traits of two other crates.
macro_rules! column {
    ($type:ident, $kind:ident, $raw:ty, $decode:expr) => {
        impl rusqlite::types::FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                $decode(<$raw as rusqlite::types::FromSql>::column_result(value)?).map_err(FromSqlError::other)
            }
        }

        impl tokio_postgres::types::FromSql<'_> for $type {
            fn from_sql(kind: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
                $decode(<$raw as tokio_postgres::types::FromSql>::from_sql(kind, raw)?).map_err(Into::into)
            }

            accepts!($kind);
        }
    };
}

column!(AccountId, INT8, i64, |id| Ok::<_, Invalid>(Self(id)));
column!(KeyId, INT8, i64, |id| Ok::<_, Invalid>(Self(id)));
column!(Timestamp, INT8, i64, |time| Ok::<_, Invalid>(Self::from_milliseconds(time)));
column!(PetStatus, INT2, i16, Self::from_code);
column!(Role, INT2, i16, Self::from_code);
column!(OrderStatus, INT2, i16, Self::from_code);
column!(MessageId, UUID, uuid::Uuid, |id: uuid::Uuid| Ok::<_, Invalid>(Self::from_bytes(id.into_bytes())));
column!(SessionHash, BYTEA, Vec<u8>, |hash: Vec<u8>| hash
    .try_into()
    .map(Self)
    .map_err(|_| Invalid("no session".into())));
column!(Email, TEXT, String, |address: String| Self::parse(&address));
column!(MessageText, TEXT, String, Self::parse);
