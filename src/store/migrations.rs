//! What the migrations of every database have in common: how they are counted, shown and refused.

use refinery::Runner;

use super::StoreError;

/// One migration, and whether a database has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MigrationStatus {
    pub name: String,
    pub applied: bool,
}

/// All that this program knows, beside the greatest version that a database has.
pub fn status(runner: &Runner, applied: i64) -> Vec<MigrationStatus> {
    let known = runner.get_migrations().iter().map(|migration| MigrationStatus {
        name: migration.to_string(),
        applied: i64::from(migration.version()) <= applied,
    });
    known.collect()
}

/// The greatest version that this program knows.
pub fn newest(runner: &Runner) -> i64 {
    runner.get_migrations().iter().map(|migration| i64::from(migration.version())).max().unwrap_or(0)
}

/// Why a database that is too new for this program is refused.
pub fn too_new(applied: i64, newest: i64) -> StoreError {
    StoreError::Failed(format!(
        "the database is at schema version {applied} and this program knows up to {newest}: use a newer petstore"
    ))
}
