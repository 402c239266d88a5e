//! Migrations of a PostgreSQL database, from `migrations/postgres`.
//!
//! During a rolling upgrade, processes of two versions share the database, so the schema may be newer than a program.
//! Each migration states in `meta` the oldest schema whose programs still work with it.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::domain::Deployment;
use crate::store::migrations::{self, Migration, NEWEST, POSTGRES as MIGRATIONS, history};
use crate::store::{Result, StoreError};

/// Advisory lock held while a database is migrated: the bytes of "petstore".
const LOCK: i64 = i64::from_be_bytes(*b"petstore");

/// The error for a role that can neither use nor create the tables. Without `USAGE`, existing ones seem missing.
pub const NO_PRIVILEGE: &str = "the role sees no tables of petstore and may not create them: grant it USAGE on their \
    schema, or run `petstore migrate` with the role that owns the database";

/// Maximum time to wait for another process's migrations.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of times that a migration is repeated if a table is in use, for instance by a dump, and the pause before each.
/// With the waits for the table, less than [`WAIT_TIMEOUT`] for one migration.
///
/// The statements of running services wait behind one that waits for a table, so it waits less than they do. It waits
/// longer than `deadlock_timeout`, after which PostgreSQL cancels an autovacuum in the way.
const RETRIES: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// Interval at which the lock is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The version of a database's schema.
pub struct Schema {
    /// The greatest version applied, 0 for a new database.
    applied: i32,
    /// The oldest version whose programs still work with it.
    oldest: i32,
}

impl Schema {
    /// Rejects a database of another build.
    pub async fn read(client: &Client) -> Result<Self> {
        let history = history(client).await?;
        migrations::missing(MIGRATIONS, &history)?;
        if history.is_empty() {
            return Ok(Self { applied: 0, oldest: 0 });
        }
        let oldest = client.query_one("SELECT value::int FROM meta WHERE key = 'oldest_schema'", &[]).await?;
        Ok(Self { applied: migrations::version(&history), oldest: oldest.try_get(0)? })
    }

    pub const fn is_new(&self) -> bool {
        self.applied == 0
    }

    /// Returns whether the database has every migration. Rejects a database that is too new for this program.
    pub fn is_current(&self) -> Result<bool> {
        if self.oldest > NEWEST {
            return Err(migrations::too_new(self.applied));
        }
        Ok(self.applied >= NEWEST)
    }
}

/// Applies the migrations that the database lacks. `new` is the deployment of a new database. Processes that start together
/// wait for each other.
pub async fn run(client: &mut Client, new: Option<Deployment>) -> Result<()> {
    take_lock(client).await?;
    if !Schema::read(client).await?.is_current()? {
        apply(client, MIGRATIONS, new).await?;
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    Ok(())
}

/// Takes the lock, which the server releases when the connection ends, also if the process dies in the middle. Polls,
/// because a statement that blocks would keep a snapshot, and `CREATE INDEX CONCURRENTLY` in another session waits for all
/// snapshots.
async fn take_lock(client: &Client) -> Result<()> {
    let poll = async {
        while !client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.try_get(0)? {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    let why = format!("waited {WAIT_TIMEOUT:?}: another process is migrating the database");
    timeout(WAIT_TIMEOUT, poll).await.unwrap_or(Err(StoreError::Unavailable(why)))
}

/// Applies those of `known` that the database lacks, each in a transaction with its record.
async fn apply(client: &mut Client, known: &[Migration], new: Option<Deployment>) -> Result<()> {
    for migration in migrations::missing(known, &history(client).await?)? {
        let refused = |error| failed(migration, error);
        let mut retries = 0..RETRIES;
        let transaction = loop {
            let transaction = client.transaction().await.map_err(refused)?;
            let sql = format!("SET LOCAL lock_timeout = '1200ms'; {}; SET LOCAL lock_timeout = 0", migration.sql);
            let Err(error) = transaction.batch_execute(&sql).await else { break transaction };
            if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) || retries.next().is_none() {
                return Err(refused(error));
            }
            transaction.rollback().await.map_err(refused)?;
            tracing::warn!("migration {migration} waits for a table that another session uses");
            sleep(PAUSE).await;
        };
        let finished = migrations::finish(transaction.client(), migration, new).await;
        finished.map_err(|error| StoreError::Failed(format!("migration {migration}: {error}")))?;
        transaction.commit().await.map_err(refused)?;
    }
    Ok(())
}

fn failed(migration: &Migration, error: Error) -> StoreError {
    let advice = match error.code() {
        Some(&SqlState::INVALID_SCHEMA_NAME) => NO_PRIVILEGE,
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) if migration.version == 1 => NO_PRIVILEGE,
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => "run `petstore migrate` with the role that owns the tables",
        Some(&SqlState::LOCK_NOT_AVAILABLE) => "try again when the dump or session that uses the table has ended",
        _ => "see the log of PostgreSQL",
    };
    StoreError::Failed(format!("migration {migration}: {}: {advice}", postgres_group_commit::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_states_the_oldest_schema() {
        for migration in MIGRATIONS {
            let (version, sql) = (migration.version, migration.sql);
            let statement = if version == 1 { "('oldest_schema', '" } else { "UPDATE meta SET value = '" };
            let stated = sql.split_once(statement).and_then(|(_, rest)| rest.split_once('\''));
            let stated = stated.and_then(|(oldest, _)| oldest.parse::<i32>().ok());
            let stated = stated.unwrap_or_else(|| panic!("{migration} does not state the oldest schema"));
            assert!(version == 1 || stated < version, "{migration}: programs of the previous version must still work");
        }
    }

    #[tokio::test]
    async fn later_migration_is_applied_whole_or_not_at_all() {
        let url = testkit::postgres::database();
        let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        run(&mut client, None).await.unwrap();
        client.batch_execute("INSERT INTO pets (name, category_id, status) VALUES ('ß🦊', 1, 2)").await.unwrap();
        let with_later = |sql| [MIGRATIONS, &[Migration::new(NEWEST + 1, "later", sql)]].concat();

        let failing = with_later("CREATE TABLE later (id bigint); DELETE FROM missing");
        let failed = apply(&mut client, &failing, None).await.unwrap_err().to_string();

        assert!(failed.contains("__later: relation \"missing\" does not exist"), "{failed}");
        client.batch_execute("SET ROLE pg_read_all_data").await.unwrap();
        let refused = apply(&mut client, &with_later("DROP TABLE pets"), None).await.unwrap_err().to_string();
        assert!(refused.ends_with(": run `petstore migrate` with the role that owns the tables"), "{refused}");
        client.batch_execute("RESET ROLE").await.unwrap();
        assert_eq!(Schema::read(&client).await.unwrap().applied, NEWEST);

        let known = with_later("ALTER TABLE pets ADD later bigint; CREATE TABLE later AS SELECT name FROM pets");
        let (dump, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        dump.batch_execute("BEGIN; TABLE pets").await.unwrap();
        let services = async {
            let waits = "SELECT true FROM pg_locks WHERE relation = 'pets'::regclass AND NOT granted";
            testkit::until(async || !dump.query(waits, &[]).await.unwrap().is_empty()).await;
            let other = url.clone();
            let read = tokio::task::spawn_blocking(move || testkit::postgres::query(&other, "TABLE pets"));
            testkit::soon(read).await.expect("a migration that waits for a dump delays no read");
            dump.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(apply(&mut client, &known, None), services).0.unwrap();
        apply(&mut client, &known, None).await.expect("nothing is missing");

        let name: String = client.query_one("SELECT name FROM later", &[]).await.unwrap().get(0);
        assert_eq!(name, "ß🦊");
        assert_eq!(Schema::read(&client).await.unwrap().applied, NEWEST + 1);
        run(&mut client, None).await.expect("a later schema that allows this program");
    }
}
