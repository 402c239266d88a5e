//! Migrations of both databases: numbered SQL files and the table that records which of them were applied.
//!
//! The first migration creates that table, so a database without it has no migration.

use std::fmt;

use super::statement::{Sql, both};
use super::transaction::Transaction;
use super::{Result, StoreError, deployment};
use crate::BUILD;
use crate::domain::{Deployment, Email};

/// Returns a row if the database has a history.
const HAS_HISTORY: Sql = Sql {
    sqlite: "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_history'",
    postgres: "SELECT 1 WHERE to_regclass('schema_history') IS NOT NULL",
};

/// Selects the history of a database that has one. `key` is not compared directly, so that SQLite uses no index: it would make
/// one for a damaged database that lacks its own, and not end if pages of the table form a circle.
const HISTORY: Sql = both(
    "SELECT version, name, (SELECT value FROM meta WHERE key || '' = 'V' || version) FROM schema_history ORDER BY version",
);

/// Makes the list of each database, oldest first. A file of SQL is named `V`, four digits, `__` and the migration's name.
macro_rules! migrations {
    ($($version:literal $file:literal)*) => {
        pub const SQLITE: &[Migration] = &[$(migrations!("sqlite/", $version, $file)),*];
        pub const POSTGRES: &[Migration] = &[$(migrations!("postgres/", $version, $file)),*];
    };
    ($folder:literal, $version:literal, $file:literal) => {
        Migration::new($version, $file.split_at(7).1, include_str!(concat!("../../migrations/", $folder, $file, ".sql")))
    };
}

migrations! {
    1 "V0001__store"
    2 "V0002__store_id"
    3 "V0003__messages_in_turn"
    4 "V0004__address_forms"
    5 "V0005__staff_changes"
    6 "V0006__key_ids"
}

/// The greatest version that this program knows, of either database.
pub const NEWEST: i32 = SQLITE[SQLITE.len() - 1].version;

/// The migration that also rewrites addresses, because SQLite cannot.
const ADDRESS_FORMS: i32 = 4;

/// A numbered step of a database's schema. Its SQL never changes once it is released.
#[derive(Clone, Debug)]
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// A row of a database's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub version: i32,
    pub name: String,
    /// The value of [`Migration::record`]. `None` if it is not known.
    pub record: Option<String>,
}

/// A migration's name, and whether a database has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MigrationStatus {
    pub name: String,
    pub applied: bool,
}

from_row!(Applied { version, name, record });

/// Returns whether a database has a history.
pub async fn has_history(tx: &impl Transaction) -> Result<bool> {
    Ok(tx.first::<()>(HAS_HISTORY, &[]).await?.is_some())
}

/// Returns the migrations that a database has, oldest first.
pub async fn history(tx: &impl Transaction) -> Result<Vec<Applied>> {
    if has_history(tx).await? { tx.all(HISTORY, &[]).await } else { Ok(Vec::new()) }
}

/// Ends a migration in the transaction that has run its SQL, and records it. `new` is the deployment of a new database.
pub async fn finish(tx: &impl Transaction, migration: &Migration, new: Option<Deployment>) -> Result<()> {
    if migration.version == ADDRESS_FORMS {
        let fold = both(
            "UPDATE accounts SET email_folded = $1
            WHERE id = $2 AND NOT EXISTS (SELECT 1 FROM accounts WHERE email_folded = $1)",
        );
        for (id, email) in tx.all::<(i64, Email)>(both("SELECT id, email FROM accounts ORDER BY id"), &[]).await? {
            if !email.as_str().is_ascii() {
                tx.execute(fold, &[&email.folded(), &id]).await?;
            }
        }
    }
    let applied = both("INSERT INTO schema_history (version, name) VALUES ($1, $2)");
    tx.execute(applied, &[&migration.version, &migration.name]).await?;
    let record =
        both("INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    tx.execute(record, &[&format!("V{}", migration.version), &migration.record()]).await?;
    if let (1, Some(new)) = (migration.version, new) {
        tx.execute(deployment::INSERT, &[&new.as_str()]).await?;
    }
    Ok(())
}

impl Migration {
    pub const fn new(version: i32, name: &'static str, sql: &'static str) -> Self {
        Self { version, name, sql }
    }

    /// The checksum of the SQL in 8 digits, and the build that applies it.
    pub fn record(&self) -> String {
        format!("{:08x} {BUILD}", crc32fast::hash(self.sql.as_bytes()))
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(self.version, self.name))
    }
}

/// The error for a database of another build, with the record of one of its migrations if there is one.
pub fn other_build(record: Option<&str>, difference: &str) -> StoreError {
    let build = record.and_then(|record| record.get(9..)).map_or(String::new(), |build| format!(", {build}"));
    StoreError::Failed(format!(
        "the database is of another build of petstore{build}: {difference}; this program is {BUILD}: use the petstore that \
         made the database, or restore a backup"
    ))
}

/// Returns the migrations that a database with this history lacks. Fails if another build has migrated it with other SQL, or
/// under another name: SQL that expects another schema could destroy data.
pub fn missing<'a>(known: &'a [Migration], history: &[Applied]) -> Result<&'a [Migration]> {
    for (migration, Applied { version, name, record }) in known.iter().zip(history) {
        let found = named(*version, name);
        if found != migration.to_string() {
            return Err(other_build(record.as_deref(), &format!("its migration {found} is {migration} here")));
        }
        if record.as_ref().is_some_and(|record| record.get(..8) != migration.record().get(..8)) {
            return Err(other_build(record.as_deref(), &format!("its migration {migration} is not the same")));
        }
    }
    Ok(known.get(history.len()..).unwrap_or_default())
}

/// Lists the migrations that a database has, also those of a later program, and then those that it lacks.
pub fn status(known: &[Migration], history: &[Applied]) -> Vec<MigrationStatus> {
    let applied = history.iter().map(|Applied { version, name, .. }| (named(*version, name), true));
    let missing = known.iter().skip(history.len()).map(|migration| (migration.to_string(), false));
    applied.chain(missing).map(|(name, applied)| MigrationStatus { name, applied }).collect()
}

fn named(version: i32, name: &str) -> String {
    format!("V{version}__{name}")
}

/// The version of a database with this history, 0 for a new one.
pub fn version(history: &[Applied]) -> i32 {
    history.last().map_or(0, |last| last.version)
}

/// The error for a database that is too new for this program.
pub fn too_new(applied: i32) -> StoreError {
    StoreError::Failed(format!(
        "the database is at schema version {applied} and this program knows up to {NEWEST}: use a newer petstore"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Migration; 3] = [
        Migration::new(1, "first", "SQL 1"),
        Migration::new(2, "second", "SQL 2"),
        Migration::new(3, "third", "SQL 3"),
    ];

    fn applied(migration: &Migration) -> Applied {
        Applied { version: migration.version, name: migration.name.to_owned(), record: Some(migration.record()) }
    }

    #[test]
    fn missing_migrations_follow_the_history() {
        let history: Vec<_> = KNOWN.iter().map(applied).collect();
        for applied in 0..=3 {
            let missing = missing(&KNOWN, &history[..applied]).unwrap();
            assert_eq!(missing.iter().map(|migration| migration.version).collect::<Vec<_>>(), [1, 2, 3][applied..]);
        }
    }

    #[test]
    fn divergent_history_is_rejected() {
        let mut history: Vec<_> = KNOWN.iter().map(applied).collect();
        history[0].record = None;
        missing(&KNOWN, &history).unwrap();
        missing(&KNOWN[..1], &history).expect("later migrations are unknown");

        history[1].record = Some("00000000 0.0.9 (abc)".into());
        let renamed = Applied { name: "other".into(), ..history[1].clone() };
        for (history, difference) in [
            (&history[..], "V2__second is not the same"),
            (&[history[0].clone(), renamed], "V2__other is V2__second here"),
            (&[history[0].clone(), history[2].clone()], "V3__third is V2__second here"),
        ] {
            let error = missing(&KNOWN, history).unwrap_err().to_string();
            assert!(error.contains(&format!(": its migration {difference}; this program is ")), "{error}");
        }
        let error = missing(&KNOWN, &history).unwrap_err().to_string();
        assert!(error.starts_with("the database is of another build of petstore, 0.0.9 (abc): "), "{error}");
    }

    /// Stores have them already.
    #[test]
    fn landed_migrations_are_unchanged() {
        let landed = [
            ("sqlite/V0001__store", "4950cc4f"),
            ("sqlite/V0002__store_id", "a4c483d4"),
            ("sqlite/V0003__messages_in_turn", "e5114237"),
            ("sqlite/V0004__address_forms", "9a378179"),
            ("sqlite/V0005__staff_changes", "5b000411"),
            ("sqlite/V0006__key_ids", "f7cf2621"),
            ("postgres/V0001__store", "2ac99cb4"),
            ("postgres/V0002__store_id", "135ec221"),
            ("postgres/V0003__messages_in_turn", "c3bde041"),
            ("postgres/V0004__address_forms", "ab617217"),
            ("postgres/V0005__staff_changes", "206c357d"),
            ("postgres/V0006__key_ids", "47a0bae8"),
        ];
        for (name, checksum) in landed {
            let sql = std::fs::read(format!("{}/migrations/{name}.sql", env!("CARGO_MANIFEST_DIR"))).unwrap();
            assert_eq!(format!("{:08x}", crc32fast::hash(&sql)), checksum, "{name}: add a migration instead");
        }
    }

    /// Every file of a folder is among the migrations, in its place.
    #[test]
    fn every_migration_file_is_embedded() {
        for (folder, known) in [("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let folder = format!("{}/migrations/{folder}", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            let mut files: Vec<_> = files.map(|file| (file.clone(), std::fs::read_to_string(file).unwrap())).collect();
            files.sort();
            let embedded: Vec<_> = known
                .iter()
                .zip(1..)
                .map(|(migration, version)| {
                    assert_eq!(migration.version, version);
                    let file = format!("{folder}/V{version:04}__{}.sql", migration.name);
                    (file.into(), migration.sql.to_owned())
                })
                .collect();
            assert_eq!(files, embedded);
        }
    }
}
