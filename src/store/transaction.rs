//! Transactions of several statements that both databases run alike.
//!
//! On PostgreSQL, each has a connection of its own. A statement does not see rows that were committed while it waited for a
//! lock, but the next statement does.

use rusqlite::Connection;
use tokio_postgres::Client;

use super::postgres::rows as postgres_rows;
use super::row::FromRow;
use super::sqlite::rows;
use super::statement::{Parameters, Sql, both, for_postgres, for_sqlite};
use super::{Result, audit};
use crate::domain::{Action, Actor, Email};

const INSERT: Sql = both(
    "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id) VALUES ($1, $2, $3, $4, $5, $6)",
);

/// A connection of either database. Every change is in an open transaction, which an error undoes; a read needs none.
pub trait Transaction {
    async fn all<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<T>>;

    /// Runs a statement that returns at most one row.
    async fn first<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Option<T>> {
        Ok(self.all(sql, parameters).await?.pop())
    }

    /// Runs a statement that returns no row. Returns the number of rows that it changed.
    async fn execute(&self, sql: Sql, parameters: Parameters<'_>) -> Result<u64>;

    /// Writes the row of a change, in the transaction of the change.
    async fn record(&self, actor: &Actor, action: Action, subject: &str) -> Result<()> {
        let (action, name, address) = (action.as_str(), &*actor.name, audit::client_address(actor));
        let values: Parameters<'_> = &[&actor.at, &action, &name, &subject, &address, &actor.request_id];
        self.execute(INSERT, values).await.map(drop)
    }

    /// Writes a row for each id of a list in JSON. The parameters of `sql` are the columns of a row, in the order of
    /// [`INSERT`], and then the list. Instead of the subject, `sql` gets `email` and makes the subject.
    async fn record_each(&self, sql: Sql, actor: &Actor, action: Action, email: &Email, ids: &str) -> Result<()> {
        let (action, name, address) = (action.as_str(), &*actor.name, audit::client_address(actor));
        let values: Parameters<'_> = &[&actor.at, &action, &name, email, &address, &actor.request_id, &ids];
        self.execute(sql, values).await.map(drop)
    }
}

/// Never waits.
impl Transaction for Connection {
    async fn all<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<T>> {
        rows::all(self, sql.sqlite, for_sqlite(parameters))
    }

    async fn execute(&self, sql: Sql, parameters: Parameters<'_>) -> Result<u64> {
        Ok(self.prepare_cached(sql.sqlite)?.execute(for_sqlite(parameters))? as u64)
    }
}

impl Transaction for Client {
    async fn all<T: FromRow>(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<T>> {
        postgres_rows::all(&self.query(sql.postgres, &for_postgres(parameters)).await?)
    }

    async fn execute(&self, sql: Sql, parameters: Parameters<'_>) -> Result<u64> {
        Ok(Client::execute(self, sql.postgres, &for_postgres(parameters)).await?)
    }
}

/// Returns the result of steps on SQLite.
pub fn at_once<T>(steps: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(steps).expect("SQLite never waits")
}

/// Declares methods of `Store` that are transactions: functions of the same names carry out the steps in either database.
/// The atomicity and the effect are those on SQLite.
macro_rules! transactions {
    ($atomicity:ident, $effect:ident: $($(#[$documentation:meta])*
        async fn $name:ident($($argument:ident: $type:ty),*) -> Result<$result:ty>;)+) => {
        impl Store {
            $(
                $(#[$documentation])*
                pub async fn $name(&self, $($argument: $type),*) -> Result<$result> {
                    use crate::store::sqlite::{Atomicity, Effect};
                    match self {
                        Self::Sqlite(db) => {
                            let steps = move |conn: &crate::store::sqlite::WriteConnection<'_>| {
                                crate::store::transaction::at_once($name(&**conn, $($argument),*))
                            };
                            db.submit(Atomicity::$atomicity, Effect::$effect, steps).await
                        }
                        Self::Postgres(db) => {
                            let steps = async move |client: &tokio_postgres::Client| $name(client, $($argument),*).await;
                            futures_util::FutureExt::boxed(db.transact(steps)).await
                        }
                    }
                }
            )+
        }
    };
}
