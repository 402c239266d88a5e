//! Migrations of an embedded database, from `migrations/sqlite`.

use rusqlite::Connection;

use super::{outbox, rows};
use crate::store::migrations::{self, Applied, CREATE_HISTORY, Migration, MigrationStatus, READ_HISTORY};
use crate::store::{Result, StoreError};

pub const MIGRATIONS: &[Migration] = &[
    Migration::new(1, "first", include_str!("../../../migrations/sqlite/V0001__first.sql")),
    Migration::new(2, "console", include_str!("../../../migrations/sqlite/V0002__console.sql")),
    Migration::new(3, "orders", include_str!("../../../migrations/sqlite/V0003__orders.sql")),
    Migration::new(4, "idempotency", include_str!("../../../migrations/sqlite/V0004__idempotency.sql")),
    Migration::new(5, "outbox", include_str!("../../../migrations/sqlite/V0005__outbox.sql")),
    Migration::new(6, "relay_index", include_str!("../../../migrations/sqlite/V0006__relay_index.sql")),
];

/// In the format of RFC 3339.
const RECORD: &str = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
    VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?3)";

/// Applies the migrations that the database lacks. Rejects a database that is newer than this program, or whose
/// history diverges from it, without a change.
pub fn run(conn: &mut Connection) -> Result<()> {
    run_first(conn, MIGRATIONS.len())
}

/// Applies those of the first `count` migrations that the database lacks, each in a transaction with its record.
fn run_first(conn: &mut Connection, count: usize) -> Result<()> {
    refuse_newer(conn)?;
    for migration in migrations::missing(&MIGRATIONS[..count], &history(conn)?)? {
        let transaction = conn.transaction()?;
        let apply = || {
            transaction.execute_batch(CREATE_HISTORY)?;
            transaction.execute_batch(migration.sql)?;
            let Applied { version, name, checksum } = migration.applied();
            transaction.execute(RECORD, (version, name, checksum))
        };
        apply().map_err(|error| StoreError::Failed(format!("migration {migration}: {error}")))?;
        transaction.commit()?;
    }
    Ok(())
}

fn history(conn: &Connection) -> Result<Vec<Applied>> {
    if !has_history(conn)? {
        return Ok(Vec::new());
    }
    rows::all(conn, READ_HISTORY, [], |row| {
        Ok(Applied { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? })
    })
}

/// Rejects a database that lacks a migration, or has one that this program does not know.
pub fn require_current(conn: &Connection) -> Result<()> {
    refuse_newer(conn)?;
    if status(conn)?.iter().all(|migration| migration.applied) {
        return Ok(());
    }
    Err(StoreError::Unavailable("its schema is older than this program, and the disk takes no migration".into()))
}

pub fn status(conn: &Connection) -> Result<Vec<MigrationStatus>> {
    Ok(migrations::status(MIGRATIONS, applied_version(conn)?))
}

/// Rejects a database that is newer than this program.
pub fn refuse_newer(conn: &Connection) -> Result<()> {
    let (applied, newest) = (applied_version(conn)?, migrations::newest(MIGRATIONS));
    if applied > newest { Err(migrations::too_new(applied, newest)) } else { Ok(()) }
}

/// The objects of a schema, without SQLite's own. Spaces and case are removed, because those of refinery's history differ.
const OBJECTS: &str = "SELECT type || ' ' || name || ' of ' || tbl_name,
    lower(replace(replace(sql, char(10), ''), ' ', '')) FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*' ORDER BY 1";

/// The first relay of a database creates it.
const RELAY_INDEX: &str = "index messages_by_sending of messages";

fn objects(conn: &Connection) -> Result<Vec<(String, String)>> {
    rows::all(conn, OBJECTS, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Rejects a database that opening would reject, or whose schema differs from the one that its migrations create. Reads no
/// other table than the history, because a foreign view may never end.
pub fn verify(conn: &Connection) -> Result<()> {
    refuse_newer(conn)?;
    let applied = history(conn)?;
    migrations::missing(MIGRATIONS, &applied)?;
    if applied.is_empty() {
        return Err(foreign());
    }
    let mut fresh = Connection::open_in_memory()?;
    run_first(&mut fresh, applied.len())?;
    let found = objects(conn)?;
    if found.iter().any(|(name, _)| name == RELAY_INDEX) {
        fresh.execute_batch(outbox::INDEX)?;
    }
    let expected = objects(&fresh)?;
    let differing = found.iter().find(|object| !expected.contains(object));
    match differing.or_else(|| expected.iter().find(|object| !found.contains(object))) {
        None => Ok(()),
        Some((name, _)) => {
            let version = applied.len();
            Err(StoreError::Failed(format!("its {name} is not as in schema version {version} of petstore")))
        }
    }
}

/// Rejects a database that another program made. Ours has its history before any other table. The history may be empty:
/// earlier versions created it in a transaction of its own.
pub fn refuse_foreign(conn: &Connection) -> Result<()> {
    let is_empty = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_empty || has_history(conn)? { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> StoreError {
    StoreError::Failed("this is not a petstore database".into())
}

fn has_history(conn: &Connection) -> Result<bool> {
    let found = "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'refinery_schema_history'";
    Ok(conn.query_row(found, [], |row| row.get(0))?)
}

/// The greatest version applied, 0 for a new database.
fn applied_version(conn: &Connection) -> Result<i32> {
    Ok(history(conn)?.last().map_or(0, |applied| applied.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_with_an_empty_history_is_accepted() {
        let mut conn = Connection::open_in_memory().unwrap();
        refuse_foreign(&conn).unwrap();
        conn.execute_batch(CREATE_HISTORY).unwrap();
        assert!(has_history(&conn).unwrap() && history(&conn).unwrap().is_empty());
        refuse_foreign(&conn).unwrap();
        run(&mut conn).unwrap();
        refuse_foreign(&conn).unwrap();

        let theirs = Connection::open_in_memory().unwrap();
        theirs.execute_batch("CREATE TABLE customers (id INTEGER)").unwrap();
        assert_eq!(refuse_foreign(&theirs).unwrap_err().to_string(), foreign().to_string());
    }

    /// Rows that earlier programs may have stored: SQL for schemas from the given version on.
    const LEFT_BEHIND: &[(usize, &str)] = &[
        (
            1,
            "INSERT INTO accounts (id, email, email_folded, password_hash, created_at) VALUES
                 (1, 'Ada@example.com', 'ada@example.com', '$argon2id$', 1795167000123);
             INSERT INTO api_keys (id, account_id, name, hash, hint, created_at) VALUES
                 (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123);
             INSERT INTO pets (id, name, category_id, status) VALUES
                 (1, 'Rex', -9223372036854775808, 1), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
             INSERT INTO messages (account_id, id, message, created_at) VALUES
                 (1, zeroblob(16), 'Hello', 1795167000123), (1, randomblob(16), 'Hello', 1795167000123);",
        ),
        (
            2,
            "UPDATE accounts SET deleted_at = 1795167000124;
             INSERT INTO sessions (token_hash, account_id, created_at, last_used_at) VALUES
                 (zeroblob(32), 1, 1795167000123, 1795167000123);",
        ),
        (
            3,
            "INSERT INTO orders (id, account_id, pet_id, status, created_at, updated_at) VALUES
                 (1, 1, 1, 3, 1795167000123, 1795167000124), (2, 1, 1, 1, 1795167000125, 1795167000126);",
        ),
        (
            4,
            "INSERT INTO idempotency_records (key_hash, account_id, fingerprint, expires_at, status, body) VALUES
                 (zeroblob(32), 1, zeroblob(32), 1795253400123, 201, x'7b7d');",
        ),
        (
            5,
            "CREATE INDEX messages_by_sending ON messages (sent_at, id);
             UPDATE messages SET sent_at = 1795167000124 WHERE id = zeroblob(16);",
        ),
    ];

    #[test]
    fn every_version_is_migrated_with_its_rows() {
        for version in 1..=MIGRATIONS.len() {
            let mut conn = Connection::open_in_memory().unwrap();
            run_first(&mut conn, version).unwrap();
            let rows = LEFT_BEHIND.iter().filter(|(since, _)| *since <= version);
            rows.for_each(|(_, sql)| conn.execute_batch(sql).unwrap());
            verify(&conn).unwrap();

            run(&mut conn).unwrap();
            run(&mut conn).expect("nothing is missing");

            let count = |table: &str| -> i64 {
                conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
            };
            assert_eq!(["accounts", "api_keys", "pets", "messages"].map(count), [1, 1, 2, 2], "from version {version}");
            assert_eq!(count("orders"), if version < 3 { 0 } else { 2 }, "from version {version}");
            assert_eq!(crate::store::sqlite::pets::find(&conn, 9_007_199_254_740_991).unwrap().unwrap().name, "ß🦊");
            let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
    }

    /// The history as refinery 0.10 wrote it, of a database at version 5.
    #[test]
    fn database_migrated_by_refinery_is_accepted() {
        let mut conn = Connection::open_in_memory().unwrap();
        MIGRATIONS[..5].iter().for_each(|migration| conn.execute_batch(migration.sql).unwrap());
        conn.execute_batch(
            "CREATE TABLE refinery_schema_history(
             version int4 PRIMARY KEY,
             name VARCHAR(255),
             applied_on VARCHAR(255),
             checksum VARCHAR(255));
             INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES
             (1, 'first', '2026-11-22T14:37:19.964416212Z', '11481534938732566877'),
             (2, 'console', '2026-11-22T14:37:19.972936299Z', '18193162038335484929'),
             (3, 'orders', '2026-11-22T14:37:19.982737241Z', '7503650111238868431'),
             (4, 'idempotency', '2026-11-22T14:37:19.985249875Z', '7721671202727345605'),
             (5, 'outbox', '2026-11-22T14:37:19.990353657Z', '16787478074861932693');",
        )
        .unwrap();

        verify(&conn).unwrap();
        run(&mut conn).unwrap();

        assert!(status(&conn).unwrap().iter().all(|migration| migration.applied));
    }

    #[test]
    fn migration_that_cannot_be_recorded_is_rolled_back() {
        let mut conn = Connection::open_in_memory().unwrap();
        let record = "CREATE TABLE refinery_schema_history
            (version INTEGER CHECK (version < 3), name TEXT, applied_on TEXT, checksum TEXT)";
        conn.execute_batch(record).unwrap();
        run(&mut conn).unwrap_err();
        assert_eq!(applied_version(&conn).unwrap(), 2);
        let orders = "SELECT count(*) FROM sqlite_schema WHERE name = 'orders'";
        assert_eq!(
            conn.query_row(orders, [], |row| row.get::<_, i64>(0)).unwrap(),
            0,
            "the third migration creates it"
        );
    }

    #[test]
    fn status_lists_missing_migrations() {
        let mut conn = Connection::open_in_memory().unwrap();
        assert!(status(&conn).unwrap().iter().all(|migration| !migration.applied));
        run(&mut conn).unwrap();
        assert!(status(&conn).unwrap().iter().all(|migration| migration.applied));
    }
}
