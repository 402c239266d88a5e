//! The schema's steps, from `migrations/postgres`, each in a transaction of its own.
//!
//! Processes of two versions run side by side while a service is renewed one by one. So a schema may be ahead of a
//! program: its migrations say in `meta` which is the oldest schema whose programs still work.

use std::error::Error as _;
use std::iter;
use std::time::Duration;

use refinery::Report;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use self::embedded::migrations::runner;
use super::error::told;
use crate::store::migrations::{self, MigrationStatus};
use crate::store::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations/postgres");
}

/// The advisory lock under which a database is migrated: the bytes of "petstore".
const LOCK: i64 = i64::from_be_bytes(*b"petstore");

const TAKE_LOCK: &str = "SELECT pg_try_advisory_lock($1)";

/// Whether no session builds an index on `messages`. A role without the privilege does not see which table an index is
/// built on, so any build in the database counts then.
const NO_INDEX_BUILD: &str = "SELECT NOT EXISTS (SELECT FROM pg_stat_progress_create_index
    WHERE datname = current_database() AND coalesce(relid, to_regclass('messages')) = to_regclass('messages'))";

/// Maximum time to wait for another process's migrations, and again for an index build.
const OTHERS: Duration = Duration::from_secs(60);

/// Interval at which both conditions are checked.
const POLL: Duration = Duration::from_millis(100);

/// How far a database's schema is.
pub struct Schema {
    /// The greatest version applied, 0 for a new database.
    applied: i64,
    /// The oldest version whose programs still work with it.
    oldest: i64,
}

impl Schema {
    pub async fn read(client: &Client) -> Result<Self> {
        if !exists(client, "refinery_schema_history").await? {
            return Ok(Self { applied: 0, oldest: 0 });
        }
        let applied = "SELECT coalesce(max(version), 0)::bigint FROM refinery_schema_history";
        let applied = client.query_one(applied, &[]).await?.try_get(0)?;
        if !exists(client, "meta").await? {
            return Ok(Self { applied, oldest: 0 });
        }
        let oldest = client.query_opt("SELECT value::bigint FROM meta WHERE key = 'oldest_schema'", &[]).await?;
        Ok(Self { applied, oldest: oldest.map_or(Ok(0), |row| row.try_get(0))? })
    }

    pub const fn is_new(&self) -> bool {
        self.applied == 0
    }

    /// Whether there is nothing to apply. A database that is too new for this program is refused.
    pub fn is_current(&self) -> Result<bool> {
        let newest = migrations::newest(&runner());
        if self.oldest > newest {
            return Err(migrations::too_new(self.applied, newest));
        }
        Ok(self.applied >= newest)
    }
}

/// Applies what is missing. Processes that start together do so one after the other.
pub async fn run(client: &mut Client) -> Result<()> {
    // The server releases the lock when the connection ends, also if the process dies in the middle.
    wait_until(client, TAKE_LOCK, &[&LOCK], "another process is migrating the database").await?;
    let schema = Schema::read(client).await?;
    if !schema.is_current()? {
        // A step that changes the table would deadlock with `CREATE INDEX CONCURRENTLY`, which waits for the step's
        // transaction while the step waits for the table.
        wait_until(client, NO_INDEX_BUILD, &[], "an index on messages is being created; start again afterwards")
            .await?;
        for step in migrations::missing(runner, schema.applied) {
            let _report: Report = step.run_async(client).await.map_err(|error| failed(&error))?;
        }
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    Ok(())
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
            sleep(POLL).await;
        }
        Ok(())
    };
    let waited = timeout(OTHERS, poll).await;
    waited.unwrap_or_else(|_| Err(StoreError::Unavailable(format!("waited {OTHERS:?}: {obstacle}"))))
}

pub async fn status(client: &Client) -> Result<Vec<MigrationStatus>> {
    Ok(migrations::status(&runner(), Schema::read(client).await?.applied))
}

/// Whether the schema that statements without one speak of has such a table.
async fn exists(client: &Client, table: &str) -> Result<bool> {
    Ok(client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?.try_get(0)?)
}

fn failed(error: &refinery::Error) -> StoreError {
    // refinery wraps the server's error, at times twice.
    let mut causes = iter::successors(error.source(), |&cause| cause.source());
    let Some(cause) = causes.find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()) else {
        return StoreError::Failed(format!("migration: {error}"));
    };
    let advice = match cause.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        true => ": run `petstore migrate` with the role that owns the tables",
        false => "",
    };
    StoreError::Failed(format!("migration: {}{advice}", told(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_says_which_programs_still_work() {
        for migration in runner().get_migrations() {
            let version = migration.version();
            let sql = migration.sql().unwrap();
            let statement = if version == 1 {
                "INSERT INTO meta (key, value) VALUES ('oldest_schema', '"
            } else {
                "UPDATE meta SET value = '"
            };
            let stated =
                sql.split_once(statement).and_then(|(_, rest)| rest.split_once('\'')).map(|(oldest, _)| oldest);
            let stated = stated.and_then(|oldest| oldest.parse::<i32>().ok());
            let stated = stated.unwrap_or_else(|| panic!("{migration} does not state the oldest schema"));
            assert!(
                version == 1 || stated < version,
                "{migration}: the programs of the version before must still work"
            );
        }
    }
}
