//! The schema's steps, from `migrations/sqlite`, each in a transaction of its own.

use refinery::Report;
use rusqlite::Connection;

use self::embedded::migrations::runner;
use crate::store::migrations::{self, MigrationStatus};
use crate::store::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// Applies what is missing. A database newer than this program is refused, untouched.
pub fn run(conn: &mut Connection) -> Result<()> {
    refuse_newer(conn)?;
    for step in migrations::missing(runner, applied_version(conn)?) {
        let _report: Report = step.run(conn).map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Refuses a database that lacks a step, or has one that this program does not know.
pub fn require_current(conn: &Connection) -> Result<()> {
    refuse_newer(conn)?;
    if status(conn)?.iter().all(|migration| migration.applied) {
        return Ok(());
    }
    Err(StoreError::Unavailable("its schema is older than this program, and the disk takes no migration".into()))
}

pub fn status(conn: &Connection) -> Result<Vec<MigrationStatus>> {
    Ok(migrations::status(&runner(), applied_version(conn)?))
}

/// Refuses a database that this program is too old for.
pub fn refuse_newer(conn: &Connection) -> Result<()> {
    let newest = migrations::newest(&runner());
    let applied = applied_version(conn)?;
    if applied > newest { Err(migrations::too_new(applied, newest)) } else { Ok(()) }
}

/// Refuses a database that somebody else has made. One of ours has its history before anything else; that it is empty
/// yet, of a process that ended at once, is no reason.
pub fn refuse_foreign(conn: &Connection) -> Result<()> {
    let is_empty = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_empty || has_history(conn)? { Ok(()) } else { Err(foreign()) }
}

pub fn foreign() -> StoreError {
    StoreError::Failed("this is no database of petstore".into())
}

/// Whether this is a database that any step was applied to.
pub fn has_any(conn: &Connection) -> Result<bool> {
    Ok(applied_version(conn)? > 0)
}

fn has_history(conn: &Connection) -> Result<bool> {
    let found = "SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    Ok(conn.query_row(found, [], |row| row.get(0))?)
}

/// The greatest version applied, 0 for a new database.
fn applied_version(conn: &Connection) -> Result<i64> {
    if !has_history(conn)? {
        return Ok(0);
    }
    Ok(conn.query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))?)
}

fn failed(error: &refinery::Error) -> StoreError {
    StoreError::Failed(format!("migration: {error}"))
}

#[cfg(test)]
mod tests {
    use refinery::Target;

    use super::*;

    #[test]
    fn a_database_that_was_only_just_begun_is_ours() {
        let mut conn = Connection::open_in_memory().unwrap();
        refuse_foreign(&conn).unwrap();
        // refinery makes it in a transaction of its own.
        runner().set_target(Target::Version(0)).run(&mut conn).unwrap();
        assert!(has_history(&conn).unwrap() && !has_any(&conn).unwrap());
        refuse_foreign(&conn).unwrap();
        run(&mut conn).unwrap();
        refuse_foreign(&conn).unwrap();

        let theirs = Connection::open_in_memory().unwrap();
        theirs.execute_batch("CREATE TABLE customers (id INTEGER)").unwrap();
        assert_eq!(refuse_foreign(&theirs).unwrap_err().to_string(), foreign().to_string());
    }

    /// What each version's program may have left behind, as SQL for that version's schema.
    const LEFT_BEHIND: [(i32, &str); 6] = [(
        1,
        "INSERT INTO accounts VALUES (1, 'Ada@example.com', 'ada@example.com', NULL, 1795167000123);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 0), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123);",
    ), (
        2,
        "INSERT INTO accounts VALUES (1, 'deleted-1@account.invalid', 'deleted 1', NULL, 1795167000123, 1795167000124);
         INSERT INTO sessions VALUES (zeroblob(32), 1, 1795167000123, 1795167000123);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 0), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123);",
    ), (
        3,
        "INSERT INTO accounts VALUES (1, 'ada@example.com', 'ada@example.com', '$argon2id$', 1795167000123, NULL);
         INSERT INTO sessions VALUES (zeroblob(32), 1, 1795167000123, 1795167000123);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 1), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         INSERT INTO orders VALUES (1, 1, 1, 3, 1795167000123, 1795167000124), (2, 1, 1, 1, 1795167000125, 1795167000126);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123);",
    ), (
        4,
        "INSERT INTO accounts VALUES (1, 'Ada@example.com', 'ada@example.com', NULL, 1795167000123, NULL);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 0), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123);
         INSERT INTO idempotency_records VALUES (zeroblob(32), 1, zeroblob(32), 1795253400123, 201, NULL, x'7b7d');",
    ), (
        5,
        "INSERT INTO accounts VALUES (1, 'Ada@example.com', 'ada@example.com', NULL, 1795167000123, NULL);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 0), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         CREATE INDEX messages_by_sending ON messages (sent_at, id);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123, 1795167000124);",
    ), (
        6,
        "INSERT INTO accounts VALUES (1, 'Ada@example.com', 'ada@example.com', NULL, 1795167000123, NULL);
         INSERT INTO api_keys VALUES (1, 1, 'test', zeroblob(32), 'pet_test_…abcd', 1795167000123, NULL, NULL, NULL, NULL);
         INSERT INTO pets VALUES (1, 'Rex', -9223372036854775808, 0), (9007199254740991, 'ß🦊', 9223372036854775807, 2);
         CREATE INDEX messages_by_sending ON messages (sent_at, id);
         INSERT INTO messages VALUES (1, zeroblob(16), 'Hello', 1795167000123, NULL);",
    )];

    #[test]
    fn every_version_is_brought_up_to_date_with_what_it_holds() {
        let newest = runner().get_migrations().len();
        assert_eq!(LEFT_BEHIND.len(), newest, "a new migration needs a line of what the one before may leave behind");
        for (version, rows) in LEFT_BEHIND {
            let mut conn = Connection::open_in_memory().unwrap();
            runner().set_target(Target::Version(version)).run(&mut conn).unwrap();
            conn.execute_batch(rows).unwrap();

            run(&mut conn).unwrap();
            run(&mut conn).expect("a second time changes nothing");

            let count = |table: &str| -> i64 {
                conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
            };
            assert_eq!(["accounts", "api_keys", "pets", "messages"].map(count), [1, 1, 2, 1], "from version {version}");
            assert_eq!(crate::store::sqlite::pets::find(&conn, 9_007_199_254_740_991).unwrap().unwrap().name, "ß🦊");
            let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
    }

    #[test]
    fn a_step_that_can_not_be_recorded_is_not_taken() {
        let mut conn = Connection::open_in_memory().unwrap();
        let record = "CREATE TABLE refinery_schema_history
            (version INTEGER CHECK (version < 3), name TEXT, applied_on TEXT, checksum TEXT)";
        conn.execute_batch(record).unwrap();
        run(&mut conn).unwrap_err();
        assert_eq!(applied_version(&conn).unwrap(), 2);
        let orders = "SELECT count(*) FROM sqlite_schema WHERE name = 'orders'";
        assert_eq!(conn.query_row(orders, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "made by the third");
    }

    #[test]
    fn the_status_tells_what_is_missing() {
        let mut conn = Connection::open_in_memory().unwrap();
        assert!(status(&conn).unwrap().iter().all(|migration| !migration.applied));
        run(&mut conn).unwrap();
        assert!(status(&conn).unwrap().iter().all(|migration| migration.applied));
    }
}
