//! A new first state for a staging store.

pub(super) mod postgres;
mod sqlite;

use super::row::{FromRow, Row};
use super::statement::Sql;
use super::{PetSource, Result, Store, StoreError};
use crate::domain::{Actor, Deployment};

/// The numbers of rows that a reset deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    pub animals: u64,
    pub orders: u64,
    pub messages: u64,
    /// Responses stored under idempotency keys.
    pub responses: u64,
}

const COUNT: &str = "SELECT (SELECT count(*) FROM pets), (SELECT count(*) FROM orders),
    (SELECT count(*) FROM messages), (SELECT count(*) FROM idempotency_records)";

impl FromRow for Contents {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        let count = |column| row.column::<i64>(column).map(i64::unsigned_abs);
        Ok(Self { animals: count(0)?, orders: count(1)?, messages: count(2)?, responses: count(3)? })
    }
}

const RESETS: Sql = Sql {
    sqlite: "SELECT value FROM meta WHERE key = 'resets'",
    postgres: "SELECT value::bigint FROM meta WHERE key = 'resets'",
};

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] = &[RESETS];

impl Store {
    /// Returns the number of resets so far, by any process. Counts that were read before a reset must not be shown after it.
    pub async fn resets(&self) -> Result<i64> {
        Ok(self.first(RESETS, &[]).await?.map_or(0, |(resets,)| resets))
    }

    /// Counts what [`Self::reset`] would delete. Fails if it would be refused.
    pub async fn before_reset(&self) -> Result<Contents> {
        self.refuse_production()?;
        if let Self::Postgres(db) = self {
            db.require_owner().await?;
        }
        Ok(self.all_long(COUNT.into()).await?.pop().expect("counts are a row"))
    }

    /// Deletes all orders, messages and stored responses, and replaces the animals by those of `animals`, in one
    /// transaction. Ids start at 1 again. Returns the number of animals. Fails and changes nothing if `is_interrupted` returns
    /// true while it waits for the locks of other processes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if the store belongs to production, or if the PostgreSQL role does not own the tables.
    pub async fn reset(&self, animals: PetSource, actor: Actor, is_interrupted: fn() -> bool) -> Result<u64> {
        self.refuse_production()?;
        match self {
            // It waits 5 s at most.
            Self::Sqlite(db) => db.reset(animals, actor).await,
            Self::Postgres(db) => db.reset(animals, actor, is_interrupted).await,
        }
    }

    fn refuse_production(&self) -> Result<()> {
        match self.deployment() {
            Deployment::Staging => Ok(()),
            Deployment::Production => Err(StoreError::Refused(
                "this is a production store, which cannot be reset: choose a staging store".into(),
            )),
        }
    }
}
