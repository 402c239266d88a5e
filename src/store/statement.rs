//! Statements that both databases run alike.
//!
//! A statement numbers its parameters in the order of their first use, because SQLite numbers `$1` and `$2` that way.

use rusqlite::types::{ToSqlOutput, Value};
use tokio_postgres::types::ToSql;

use super::postgres::rows as postgres_rows;
use super::row::FromRow;
use super::sqlite::{Atomicity, Effect, WriteConnection, rows};
use super::{Result, Store};
use crate::domain::Timestamp;

/// A statement, as each database writes it. Most are the same text.
#[derive(Clone, Copy, Debug)]
pub struct Sql {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

impl Sql {
    pub const fn of(self, store: &Store) -> &'static str {
        match store {
            Store::Sqlite(_) => self.sqlite,
            Store::Postgres(_) => self.postgres,
        }
    }
}

/// Makes a statement that is the same in both databases.
pub const fn both(text: &'static str) -> Sql {
    Sql { sqlite: text, postgres: text }
}

/// Makes an [`Sql`] with clauses that only PostgreSQL needs, because SQLite has one writer.
macro_rules! locking {
    ($statement:literal, $lock:literal $(, $rest:literal)?) => {
        crate::store::statement::Sql {
            sqlite: concat!($statement $(, " ", $rest)?),
            postgres: concat!($statement, " ", $lock $(, " ", $rest)?),
        }
    };
}

/// Makes an [`Sql`] whose condition ends with a list of ids, which its last parameter has in JSON.
macro_rules! among {
    ($statement:literal, $parameter:literal $(, $rest:literal)?) => {
        crate::store::statement::Sql {
            sqlite: concat!($statement, " IN (SELECT value FROM json_each(", $parameter, "))" $(, " ", $rest)?),
            postgres: concat!(
                $statement,
                " IN (SELECT value::bigint FROM json_array_elements_text(",
                $parameter,
                "::text::json))"
                $(, " ", $rest)?
            ),
        }
    };
}

/// Returns ids as a parameter of [`among!`].
pub fn id_list(ids: impl IntoIterator<Item = i64>) -> String {
    format!("{:?}", ids.into_iter().collect::<Vec<_>>())
}

/// A parameter of a statement.
pub trait Parameter: rusqlite::ToSql + ToSql + Sync {}

impl<T: rusqlite::ToSql + ToSql + Sync> Parameter for T {}

pub type Parameters<'a> = &'a [&'a dyn Parameter];

/// Returns the parameters as PostgreSQL's driver takes them.
pub fn for_postgres<'a>(parameters: Parameters<'a>) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| *parameter as &(dyn ToSql + Sync)).collect()
}

/// Returns the parameters as SQLite's driver takes them.
pub fn for_sqlite(parameters: Parameters<'_>) -> impl rusqlite::Params {
    rusqlite::params_from_iter(parameters.iter().map(|parameter| *parameter as &dyn rusqlite::ToSql))
}

impl Store {
    /// Runs a short read.
    pub(super) async fn all<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| rows::all(conn, sql.sqlite, for_sqlite(parameters))),
            Self::Postgres(db) => {
                let parameters = for_postgres(parameters);
                postgres_rows::all(&Box::pin(db.readers.query(sql.postgres, &parameters)).await?)
            }
        }
    }

    /// Runs a short read of at most one row.
    pub(super) async fn first<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Option<T>> {
        Ok(self.all(sql, parameters).await?.pop())
    }

    /// Runs a read of whole tables, which may take long.
    pub(super) async fn all_long<T: FromRow + Send + 'static>(&self, sql: String) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => db.read_long(move |conn| rows::all(conn, &sql, [])).await,
            Self::Postgres(db) => postgres_rows::all(&Box::pin(db.count(sql)).await?),
        }
    }

    /// Runs a write of one statement, which changes no animal, and returns the rows that it returns.
    pub(super) async fn write<T: FromRow + Send + 'static>(
        &self,
        sql: Sql,
        parameters: Parameters<'_>,
    ) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => {
                let values = parameters.iter().copied().map(value).collect::<rusqlite::Result<Vec<_>>>()?;
                let values = rusqlite::params_from_iter(values);
                let write = move |conn: &WriteConnection<'_>| rows::all(conn, sql.sqlite, values);
                db.submit(Atomicity::Statement, Effect::Unlisted, write).await
            }
            Self::Postgres(db) => {
                let parameters = for_postgres(parameters);
                postgres_rows::all(&Box::pin(db.single.write(sql.postgres, &parameters)).await?)
            }
        }
    }

    /// Runs a statement that deletes the rows up to a time and returns each. Returns their number.
    pub(super) async fn delete(&self, sql: Sql, until: Timestamp, limit: u32) -> Result<u64> {
        Ok(self.write::<()>(sql, &[&until, &i64::from(limit)]).await?.len() as u64)
    }
}

/// Copies a parameter, because a write moves to the thread of the writer.
fn value(parameter: &dyn Parameter) -> rusqlite::Result<Value> {
    Ok(match rusqlite::ToSql::to_sql(parameter)? {
        ToSqlOutput::Borrowed(value) => value.try_into()?,
        ToSqlOutput::Owned(value) => value,
        _ => unreachable!("no parameter is an array"),
    })
}
