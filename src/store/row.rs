//! Rows of either database, and the results that are read from them.

use std::error::Error;

use bytes::BytesMut;
use rusqlite::types::{FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use tokio_postgres::types::{IsNull, Type, accepts, to_sql_checked};
use uuid::Uuid;

use crate::domain::account::PasswordDigest;
use crate::domain::api_key::KeyState;
use crate::domain::{
    AccountId, Email, Invalid, KeyHash, KeyId, MessageId, MessageText, OrderStatus, PetStatus, Role, Secret,
    SessionHash, Timestamp,
};

/// A row of SQLite or PostgreSQL.
pub trait Row {
    type Error;

    /// Decodes the column at `index`, from 0.
    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error>;

    /// Borrows the text of a column.
    fn text(&self, index: usize) -> Result<&str, Self::Error>;
}

/// A result with a row. The statements of both databases return its columns in the same order. Most are declared
/// with `from_row!`. Animals have none, because they borrow their names from the row.
pub trait FromRow: Sized {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error>;
}

/// A type of a column.
pub trait Column: rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a> {}

impl<T: rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a>> Column for T {}

/// A row of which nothing is read.
impl FromRow for () {
    fn from_row<R: Row>(_: &R) -> Result<Self, R::Error> {
        Ok(())
    }
}

impl<T: Column> FromRow for (T,) {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        Ok((row.column(0)?,))
    }
}

impl<T: Column, U: Column> FromRow for (T, U) {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        Ok((row.column(0)?, row.column(1)?))
    }
}

impl Row for rusqlite::Row<'_> {
    type Error = rusqlite::Error;

    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error> {
        self.get(index)
    }

    fn text(&self, index: usize) -> Result<&str, Self::Error> {
        Ok(self.get_ref(index)?.as_str()?)
    }
}

impl Row for tokio_postgres::Row {
    type Error = tokio_postgres::Error;

    fn column<T: Column>(&self, index: usize) -> Result<T, Self::Error> {
        self.try_get(index)
    }

    fn text(&self, index: usize) -> Result<&str, Self::Error> {
        self.try_get(index)
    }
}

/// Makes a type readable from a column of either database, and a parameter of both: both drivers read and write a `$raw`. A
/// function cannot implement the traits of two other crates.
macro_rules! column {
    ($type:ident, $kind:ident, $raw:ty, $decode:expr, $encode:expr) => {
        impl rusqlite::types::FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                $decode(<$raw as rusqlite::types::FromSql>::column_result(value)?).map_err(FromSqlError::other)
            }
        }

        impl rusqlite::ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                let encode: fn(&Self) -> $raw = $encode;
                Ok(encode(self).into())
            }
        }

        impl tokio_postgres::types::FromSql<'_> for $type {
            fn from_sql(kind: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
                $decode(<$raw as tokio_postgres::types::FromSql>::from_sql(kind, raw)?).map_err(Into::into)
            }

            accepts!($kind);
        }

        impl tokio_postgres::types::ToSql for $type {
            fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
                let encode: fn(&Self) -> $raw = $encode;
                tokio_postgres::types::ToSql::to_sql(&encode(self), kind, out)
            }

            accepts!($kind);
            to_sql_checked!();
        }
    };
}

column!(AccountId, INT8, i64, |id| Ok::<_, Invalid>(Self(id)), |id| id.0);
column!(KeyId, INT8, i64, |id| Ok::<_, Invalid>(Self(id)), |id| id.0);
column!(Timestamp, INT8, i64, |time| Ok::<_, Invalid>(Self::from_milliseconds(time)), |time| time.as_milliseconds());
column!(PetStatus, INT2, i16, Self::from_code, |status| status.code());
column!(Role, INT2, i16, Self::from_code, |role| role.code());
column!(OrderStatus, INT2, i16, Self::from_code, |status| status.code());
column!(KeyState, INT2, i16, Self::from_code, |state| state.code());
column!(MessageId, UUID, Uuid, |id| Ok::<_, Invalid>(Self(id)), |id| id.0);
column!(SessionHash, BYTEA, Vec<u8>, |hash| hash_of(hash).map(Self), |hash| hash.0.to_vec());
column!(KeyHash, BYTEA, Vec<u8>, |hash| hash_of(hash).map(Self), |hash| hash.0.to_vec());
column!(PasswordDigest, TEXT, String, |digest: String| Ok::<_, Invalid>(Self(Secret::new(digest))), |digest| {
    digest.0.expose().to_owned()
});
column!(Email, TEXT, String, |address: String| Self::parse(&address), |address| address.as_str().to_owned());
column!(MessageText, TEXT, String, Self::parse, |text| text.as_str().to_owned());

fn hash_of(bytes: Vec<u8>) -> Result<[u8; 32], Invalid> {
    bytes.try_into().map_err(|_| Invalid("no hash of 32 bytes".into()))
}
