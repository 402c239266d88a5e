//! Migrations of an embedded database, from `migrations/sqlite`.

use rusqlite::Connection;

use super::rows;
use crate::domain::Deployment;
use crate::store::messages::sqlite_lease::{FIRST_INDEX, INDEX};
use crate::store::migrations::{self, Applied, Migration, MigrationStatus, NEWEST, SQLITE as MIGRATIONS};
use crate::store::transaction::at_once;
use crate::store::{Result, StoreError};

/// Applies the migrations that the database lacks. Rejects a database that [`refuse_other`] rejects, or whose history
/// diverges from this program's, without a change. `new` is the deployment of a new database.
pub fn run(conn: &mut Connection, new: Option<Deployment>) -> Result<()> {
    refuse_other(conn)?;
    apply(conn, MIGRATIONS, new)
}

/// Applies those of `known` that the database lacks, each in a transaction with its record.
fn apply(conn: &mut Connection, known: &[Migration], new: Option<Deployment>) -> Result<()> {
    for migration in migrations::missing(known, &history(conn)?)? {
        let failed = |error| StoreError::Failed(format!("migration {migration}: {error}"));
        let transaction = conn.transaction()?;
        transaction.execute_batch(migration.sql).map_err(|error| failed(error.into()))?;
        at_once(migrations::finish(&*transaction, migration, new)).map_err(failed)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Returns the migrations that the database has. Empty if it has no tables yet.
pub fn history(conn: &Connection) -> Result<Vec<Applied>> {
    at_once(migrations::history(conn))
}

pub fn status(conn: &Connection) -> Result<Vec<MigrationStatus>> {
    Ok(migrations::status(MIGRATIONS, &history(conn)?))
}

/// Rejects a database that is newer than this program, or that another build migrated with other SQL of the same name.
/// Compares the objects, because early builds recorded no checksums. Accepts additional objects.
pub fn refuse_other(conn: &Connection) -> Result<()> {
    let (history, found, expected) = objects_of(conn)?;
    let differs = |object: &&Object| object.0 != RELAY_INDEX && !found.contains(object);
    let Some((name, _)) = expected.iter().find(differs) else { return Ok(()) };
    let difference = format!("its {name} is not as in schema version {}", history.len());
    Err(migrations::other_build(history[0].record.as_deref(), &difference))
}

/// A name and the SQL that creates it.
type Object = (String, String);

/// The objects of a schema, without SQLite's own.
const OBJECTS: &str = "SELECT type || ' ' || name || ' of ' || tbl_name, sql FROM sqlite_schema
    WHERE name NOT GLOB 'sqlite_*' ORDER BY 1";

/// The first relay of a database creates it.
const RELAY_INDEX: &str = "index messages_by_sending of messages";

/// Returns the history of a database, its objects, and those of a new database of this version. Fails if it is newer than
/// this program, or its history diverges.
fn objects_of(conn: &Connection) -> Result<(Vec<Applied>, Vec<Object>, Vec<Object>)> {
    let applied = history(conn)?;
    let version = migrations::version(&applied);
    if version > NEWEST {
        return Err(migrations::too_new(version));
    }
    migrations::missing(MIGRATIONS, &applied)?;
    let mut fresh = Connection::open_in_memory()?;
    apply(&mut fresh, &MIGRATIONS[..applied.len()], None)?;
    let found: Vec<Object> = rows::all(conn, OBJECTS, [])?;
    if found.iter().any(|(name, _)| name == RELAY_INDEX) {
        fresh.execute_batch(if version < 3 { FIRST_INDEX } else { INDEX })?;
    }
    Ok((applied, found, rows::all(&fresh, OBJECTS, [])?))
}

/// Rejects a database that opening would reject, or whose schema differs from the one that its migrations create. Reads no
/// other table than the history, because a foreign view may never end.
pub fn verify(conn: &Connection) -> Result<()> {
    let (history, found, expected) = objects_of(conn)?;
    if history.is_empty() {
        return Err(foreign());
    }
    let differs = |object: &&Object| found.contains(object) != expected.contains(object);
    let Some((name, _)) = found.iter().chain(&expected).find(differs) else { return Ok(()) };
    Err(StoreError::Failed(format!("its {name} is not as in schema version {} of petstore", history.len())))
}

/// Rejects a database that another program made.
pub fn refuse_foreign(conn: &Connection) -> Result<()> {
    let is_empty = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_empty || at_once(migrations::has_history(conn))? { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> StoreError {
    StoreError::Failed("this is not a petstore database".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies this program's migrations and a later one.
    fn apply_later(conn: &mut Connection, sql: &'static str) -> Result<()> {
        let later = Migration::new(NEWEST + 1, "later", sql);
        apply(conn, &[MIGRATIONS, &[later]].concat(), None)
    }

    fn migrated() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        run(&mut conn, Some(Deployment::Staging)).unwrap();
        conn
    }

    #[test]
    fn later_migration_keeps_the_rows() {
        let mut conn = migrated();
        conn.execute("INSERT INTO pets (id, name, category_id, status) VALUES (7, 'ß🦊', 1, 2)", []).unwrap();
        let change = "ALTER TABLE pets ADD COLUMN later INTEGER";

        apply_later(&mut conn, change).unwrap();
        apply_later(&mut conn, change).expect("nothing is missing");

        let pet = conn.query_row("SELECT name, later FROM pets", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(pet, ("ß🦊".to_owned(), None::<i64>));
    }

    #[test]
    fn failed_migration_is_rolled_back() {
        let mut conn = migrated();

        let failed = apply_later(&mut conn, "CREATE TABLE later (id INTEGER); DELETE FROM missing").unwrap_err();

        assert!(failed.to_string().contains("__later: no such table: missing"), "{failed}");
        verify(&conn).unwrap();
        assert_eq!(migrations::version(&history(&conn).unwrap()), NEWEST);
    }

    #[test]
    fn database_of_each_version_may_have_the_index_of_a_relay() {
        for version in 1..=MIGRATIONS.len() {
            let mut conn = Connection::open_in_memory().unwrap();
            apply(&mut conn, &MIGRATIONS[..version], None).unwrap();
            conn.execute_batch(if version <= 2 { FIRST_INDEX } else { INDEX }).unwrap();
            verify(&conn).unwrap();
            run(&mut conn, None).unwrap();
            verify(&conn).unwrap();
        }
    }
}
