//! What the migrations of every database have in common: how they are counted, shown and refused.

use refinery::{Runner, Target};

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

/// What applies the steps that a database lacks, one after the other: each in one transaction with the record that it was
/// applied. Without being told to, refinery makes that record in a transaction of its own, and a process that ends in
/// between leaves a database that can't be opened any more.
pub fn missing(runner: impl Fn() -> Runner, applied: i64) -> impl Iterator<Item = Runner> {
    let versions: Vec<_> = runner().get_migrations().iter().map(refinery::Migration::version).collect();
    let missing = versions.into_iter().filter(move |version| i64::from(*version) > applied);
    missing.map(move |version| runner().set_target(Target::Version(version)).set_grouped(true))
}

/// Why a database that is too new for this program is refused.
pub fn too_new(applied: i64, newest: i64) -> StoreError {
    StoreError::Failed(format!(
        "the database is at schema version {applied} and this program knows up to {newest}: use a newer petstore"
    ))
}
