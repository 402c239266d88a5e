//! Resetting a store in SQLite.

use rusqlite::config::DbConfig;

use crate::domain::{Action, Actor};
use crate::store::pets;
use crate::store::sqlite::{Atomicity, Sqlite};
use crate::store::transaction::{Transaction, at_once};
use crate::store::{PetSource, Result};

/// Without `WHERE`, and while no foreign key is checked, SQLite frees the pages of a table without visiting its rows. It
/// writes one page of the log for each 1,000 that it frees.
const DELETE_ALL: &str = "DELETE FROM idempotency_records; DELETE FROM messages; DELETE FROM orders; DELETE FROM pets";

/// Also ends the pauses of the relay.
const COUNT_RESET: &str = "INSERT OR REPLACE INTO meta (key, value) VALUES ('retries', 'all');
    INSERT INTO meta (key, value) VALUES ('resets', 1) ON CONFLICT DO UPDATE SET value = value + 1";

impl Sqlite {
    /// A new id is the greatest one plus one, so ids of empty tables start at 1. `animals` fail only in a command, which
    /// makes no other writes.
    pub async fn reset(&self, animals: PetSource, actor: Actor) -> Result<u64> {
        let subject = self.deployment.as_str();
        self.submit_long(Atomicity::Batch, move |conn| {
            // The pragma would do nothing within a transaction.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
            let deleted = conn.execute_batch(DELETE_ALL);
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
            deleted?;
            conn.execute_batch(COUNT_RESET)?;
            at_once(conn.record(&actor, Action::ResetStore, subject))?;
            pets::sqlite::insert_all(conn, animals)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;
    use crate::store::StoreError;
    use crate::store::sqlite::Options;

    #[tokio::test]
    async fn foreign_keys_are_checked_after_a_reset() {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(&Options::new(folder.path())).unwrap();
        let actor = Actor::command_line(Timestamp::from_milliseconds(0));
        for animals in [Vec::new(), vec![Err("line 1: broken".to_owned())]] {
            let is_valid = animals.is_empty();
            assert_eq!(db.reset(Box::new(animals.into_iter()), actor.clone()).await.is_ok(), is_valid);
            let insert = "INSERT INTO orders VALUES (1, 1, 1, 0, 0, 0)";
            let inserted = db.submit_long(Atomicity::Savepoint, |conn| Ok(conn.execute(insert, [])?)).await;
            assert!(matches!(&inserted, Err(StoreError::Failed(why)) if why.contains("FOREIGN KEY")), "{inserted:?}");
        }
        db.close().await;
    }
}
