//! The schema's steps, from `migrations/sqlite`, each in a transaction of its own.

use refinery::{Report, Runner, Target};
use rusqlite::Connection;

use crate::store::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// One migration, and whether a database has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MigrationStatus {
    pub name: String,
    pub applied: bool,
}

/// Applies what is missing. A database newer than this program is refused, untouched.
pub fn run(conn: &mut Connection) -> Result<()> {
    refuse_newer(conn)?;
    let _report: Report = runner().run(conn).map_err(|error| failed(&error))?;
    Ok(())
}

pub fn status(conn: &mut Connection) -> Result<Vec<MigrationStatus>> {
    let runner = runner();
    let applied = applied_version(conn)?;
    let known = runner.get_migrations().iter().map(|migration| MigrationStatus {
        name: migration.to_string(),
        applied: i64::from(migration.version()) <= applied,
    });
    Ok(known.collect())
}

/// Applies the steps up to `version` only, as an older program would have: for trying later ones on what it left.
#[cfg(test)]
pub fn run_to(conn: &mut Connection, version: i32) -> Result<()> {
    runner().set_target(Target::Version(version)).run(conn).map_err(|error| failed(&error))?;
    Ok(())
}

fn runner() -> Runner {
    embedded::migrations::runner().set_target(Target::Latest)
}

fn refuse_newer(conn: &Connection) -> Result<()> {
    let newest = runner().get_migrations().iter().map(|migration| i64::from(migration.version())).max().unwrap_or(0);
    let applied = applied_version(conn)?;
    if applied > newest {
        return Err(StoreError::Failed(format!(
            "the database is at schema version {applied} and this program knows up to {newest}: use a newer petstore"
        )));
    }
    Ok(())
}

/// The greatest version applied, 0 for a new database.
fn applied_version(conn: &Connection) -> Result<i64> {
    let table = "SELECT count(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    if conn.query_row(table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    Ok(conn.query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))?)
}

fn failed(error: &refinery::Error) -> StoreError {
    StoreError::Failed(format!("migration: {error}"))
}
