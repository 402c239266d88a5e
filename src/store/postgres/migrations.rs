//! Migrations of a PostgreSQL database, from `migrations/postgres`.
//!
//! During a rolling upgrade, processes of two versions share the database, so the schema may be newer than a program.
//! Each migration states in `meta` the oldest schema whose programs still work with it.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::error::describe;
use crate::store::migrations::{self, Applied, CREATE_HISTORY, Migration, MigrationStatus, READ_HISTORY};
use crate::store::{Result, StoreError};

pub const MIGRATIONS: &[Migration] = &[
    Migration::new(1, "first", include_str!("../../../migrations/postgres/V0001__first.sql")),
    Migration::new(2, "console", include_str!("../../../migrations/postgres/V0002__console.sql")),
    Migration::new(3, "orders", include_str!("../../../migrations/postgres/V0003__orders.sql")),
    Migration::new(4, "idempotency", include_str!("../../../migrations/postgres/V0004__idempotency.sql")),
    Migration::new(5, "outbox", include_str!("../../../migrations/postgres/V0005__outbox.sql")),
    Migration::new(6, "relay_index", include_str!("../../../migrations/postgres/V0006__relay_index.sql")),
];

/// In the format of RFC 3339.
const RECORD: &str = r#"INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
    VALUES ($1, $2, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), $3)"#;

/// Advisory lock held while a database is migrated: the bytes of "petstore".
const LOCK: i64 = i64::from_be_bytes(*b"petstore");

const TAKE_LOCK: &str = "SELECT pg_try_advisory_lock($1)";

/// True if no session builds an index on `messages`. A role without the privilege does not see which table an index is
/// built on, so any build in the database counts then.
const NO_INDEX_BUILD: &str = "SELECT NOT EXISTS (SELECT FROM pg_stat_progress_create_index
    WHERE datname = current_database() AND coalesce(relid, to_regclass('messages')) = to_regclass('messages'))";

/// Maximum time to wait for another process's migrations, and again for an index build.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which both conditions are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The version of a database's schema.
pub struct Schema {
    /// The greatest version applied, 0 for a new database.
    applied: i32,
    /// The oldest version whose programs still work with it.
    oldest: i32,
}

impl Schema {
    pub async fn read(client: &Client) -> Result<Self> {
        let applied = history(client).await?.last().map_or(0, |applied| applied.version);
        if !exists(client, "meta").await? {
            return Ok(Self { applied, oldest: 0 });
        }
        let oldest = client.query_opt("SELECT value::int FROM meta WHERE key = 'oldest_schema'", &[]).await?;
        Ok(Self { applied, oldest: oldest.map_or(Ok(0), |row| row.try_get(0))? })
    }

    pub const fn is_new(&self) -> bool {
        self.applied == 0
    }

    /// Returns whether the database has every migration. Rejects a database that is too new for this program.
    pub fn is_current(&self) -> Result<bool> {
        let newest = migrations::newest(MIGRATIONS);
        if self.oldest > newest {
            return Err(migrations::too_new(self.applied, newest));
        }
        Ok(self.applied >= newest)
    }
}

/// Applies the migrations that the database lacks. Processes that start together wait for each other.
pub async fn run(client: &mut Client) -> Result<()> {
    // The server releases the lock when the connection ends, also if the process dies in the middle.
    wait_until(client, TAKE_LOCK, &[&LOCK], "another process is migrating the database").await?;
    let schema = Schema::read(client).await?;
    if !schema.is_current()? {
        // A migration that changes the table would deadlock with `CREATE INDEX CONCURRENTLY`, which waits for the
        // migration's transaction while the migration waits for the table.
        wait_until(client, NO_INDEX_BUILD, &[], "an index on messages is being created; start again afterwards")
            .await?;
        for migration in migrations::missing(MIGRATIONS, &history(client).await?)? {
            apply(client, migration).await.map_err(|error| failed(migration, &error))?;
        }
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    Ok(())
}

/// Applies a migration and records it, in one transaction. Creates the history first, if it is missing.
async fn apply(client: &mut Client, migration: &Migration) -> std::result::Result<(), Error> {
    client.batch_execute(CREATE_HISTORY).await?;
    let transaction = client.transaction().await?;
    transaction.batch_execute(migration.sql).await?;
    let Applied { version, name, checksum } = migration.applied();
    transaction.execute(RECORD, &[&version, &name, &checksum]).await?;
    transaction.commit().await
}

async fn history(client: &Client) -> Result<Vec<Applied>> {
    if !exists(client, "refinery_schema_history").await? {
        return Ok(Vec::new());
    }
    let applied =
        |row: &Row| Ok(Applied { version: row.try_get(0)?, name: row.try_get(1)?, checksum: row.try_get(2)? });
    client.query(READ_HISTORY, &[]).await?.iter().map(applied).collect()
}

/// Polls until the condition holds. A statement that blocks would keep a snapshot, and `CREATE INDEX CONCURRENTLY` in
/// another session waits for all snapshots.
async fn wait_until(
    client: &Client,
    condition: &str,
    parameters: &[&(dyn ToSql + Sync)],
    obstacle: &str,
) -> Result<()> {
    let poll = async {
        while !client.query_one(condition, parameters).await?.try_get(0)? {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    let waited = timeout(WAIT_TIMEOUT, poll).await;
    waited.unwrap_or_else(|_| Err(StoreError::Unavailable(format!("waited {WAIT_TIMEOUT:?}: {obstacle}"))))
}

pub async fn status(client: &Client) -> Result<Vec<MigrationStatus>> {
    Ok(migrations::status(MIGRATIONS, Schema::read(client).await?.applied))
}

/// Returns whether the table exists in the schema search path.
async fn exists(client: &Client, table: &str) -> Result<bool> {
    Ok(client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?.try_get(0)?)
}

fn failed(migration: &Migration, error: &Error) -> StoreError {
    let advice = match error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        true => ": run `petstore migrate` with the role that owns the tables",
        false => "",
    };
    StoreError::Failed(format!("migration {migration}: {}{advice}", describe(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_states_the_oldest_schema() {
        for migration in MIGRATIONS {
            let (version, sql) = (migration.version, migration.sql);
            let statement = if version == 1 {
                "INSERT INTO meta (key, value) VALUES ('oldest_schema', '"
            } else {
                "UPDATE meta SET value = '"
            };
            let stated =
                sql.split_once(statement).and_then(|(_, rest)| rest.split_once('\'')).map(|(oldest, _)| oldest);
            let stated = stated.and_then(|oldest| oldest.parse::<i32>().ok());
            let stated = stated.unwrap_or_else(|| panic!("{migration} does not state the oldest schema"));
            assert!(version == 1 || stated < version, "{migration}: programs of the previous version must still work");
        }
    }
}
