//! SQLite: petstore's database, carried out by the crate `sqlite-group-commit`.
//!
//! A process opens a database once: see [`Database`].

pub mod backup;
pub(super) mod migrations;
mod options;
pub(super) mod rows;
mod schema;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use sqlite_group_commit::Database;
pub use sqlite_group_commit::{
    AtomicFile, Atomicity, Effect, Epoch, Error, Folder, Insert, NewRow, Version, WriteConnection, Writer, folder_of,
    make_folder, own_file,
};

use super::{Disk, Meters, MigrationStatus, Result, deployment};
use crate::domain::Deployment;
use crate::store::transaction::at_once;
use options::Observer;
pub use options::{DatabaseOptions, Options};
use schema::PetstoreSchema;

/// Name of the database's files, and of unfinished files.
pub const NAME: &str = "petstore";

/// The API key that `petstore quickstart` keeps.
pub const KEY_FILE: &str = "quickstart.key";

/// Returns the names of a data directory's files.
pub fn folder(data_dir: &Path) -> Folder {
    Folder::new(data_dir, NAME).with_own_files(&[KEY_FILE]).with_traces(has_traces)
}

/// Returns whether a folder has files that only a store leaves there: its backups, or its key.
fn has_traces(data_dir: &Path) -> bool {
    let is_backup = |name: &str| name.starts_with("petstore-") && name.ends_with(".db");
    let backups = std::fs::read_dir(data_dir.join("backups")).into_iter().flatten().flatten();
    backups.map(|found| found.file_name()).any(|name| name.to_str().is_some_and(is_backup))
        || data_dir.join(KEY_FILE).exists()
}

/// petstore's database. It dereferences to the [`Database`], for reads and the rest that does not know petstore.
#[derive(Debug)]
pub struct Sqlite {
    db: Database,
    observer: Arc<Observer>,
    pub deployment: Deployment,
    pub id: String,
    pub durable: bool,
}

impl Deref for Sqlite {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.db
    }
}

impl Sqlite {
    /// Opens the database of a data directory and migrates its schema. Creates the database if `options` allow it.
    pub fn open(options: &Options) -> Result<Self> {
        Self::open_with(options, false, |conn, writer| writer.start(conn))
    }

    /// Opens a database like [`Self::open`], and passes the writer to `start`, with its connection. If this process simulates
    /// several, it may have the database open more than once.
    pub fn open_with(
        options: &Options,
        simulated: bool,
        start: impl FnOnce(Connection, Writer) -> sqlite_group_commit::Result<()>,
    ) -> Result<Self> {
        let observer = Arc::<Observer>::default();
        let schema = PetstoreSchema::new(options.deployment, options.create);
        let folder = folder(&options.data_dir);
        let (create, durable) = (options.create.is_some(), options.database.durable);
        let database = DatabaseOptions { create, observer: observer.clone(), ..options.database.clone() };
        let db = Database::open_with(&folder, &database, &schema, simulated, start)?;
        let (deployment, id) = schema.found();
        Ok(Self { db, observer, deployment, id, durable })
    }

    /// Returns all migrations and whether the database has them, without changing it.
    pub fn migration_status(data_dir: &Path) -> Result<Vec<MigrationStatus>> {
        let (_in_use, conn) = sqlite_group_commit::connect_unmigrated(&folder(data_dir))?;
        migrations::status(&conn)
    }

    /// Returns the deployment of a database without changing it. `None` if there is none, or none with tables.
    pub fn stored_deployment(data_dir: &Path) -> Result<Option<Deployment>> {
        let (_in_use, conn) = match sqlite_group_commit::connect_unmigrated(&folder(data_dir)) {
            Err(Error::Missing(_)) => return Ok(None),
            opened => opened?,
        };
        migrations::refuse_foreign(&conn)?;
        migrations::refuse_other(&conn)?;
        match migrations::history(&conn)?.is_empty() {
            true => Ok(None),
            false => at_once(deployment::stored(&conn, None)).map(Some),
        }
    }

    /// Runs a write in a batch with other writes; durable once this returns. See [`Database::submit`].
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        effect: Effect,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        Ok(self.db.submit(atomicity, effect, |conn| Ok(write(conn)?)).await?)
    }

    /// Runs a write like [`Self::submit`], but without a limit of time. For commands and for writes of many rows.
    pub async fn submit_long<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        Ok(self.db.submit_long(atomicity, |conn| Ok(write(conn)?)).await?)
    }

    pub fn check(&self) -> Result<()> {
        self.db.check()?;
        self.db.read(|conn| Ok(conn.prepare_cached("SELECT 1 FROM meta LIMIT 1")?.query_row([], |_| Ok(()))?))
    }

    pub fn disk(&self) -> Option<Disk> {
        let disk = rustix::fs::statvfs(self.db.folder().database()).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Disk { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
    }

    pub fn meters(&self) -> Meters<'_> {
        let Observer { writer, readers } = &*self.observer;
        let writers = self.db.queued().map(|queued| ("all", writer, queued as i64));
        let reads = self.db.reads() as i64;
        Meters { writers: writers.into_iter().collect(), readers, reads, connections: Vec::new(), standbys: [0; 2] }
    }
}

/// Returns the steps by which SQLite answers a query of a new database that has the relay's index.
#[cfg(test)]
pub(super) fn plan(sql: &str) -> Vec<String> {
    let mut conn = rusqlite::Connection::open_in_memory().unwrap();
    migrations::run(&mut conn, None).unwrap();
    conn.execute_batch(crate::store::messages::sqlite_lease::INDEX).unwrap();
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    explain.raw_query().mapped(|row| row.get("detail")).collect::<rusqlite::Result<_>>().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_and_the_key_are_traces_of_a_store() {
        let cases = [
            ("backups/petstore-20261129T120000Z.db", true),
            ("backups/petstore-notes.txt", false),
            ("backups/mine.db", false),
            (KEY_FILE, true),
        ];
        for (file, is_trace) in cases {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("backups")).unwrap();
            std::fs::write(folder.path().join(file), "").unwrap();
            assert_eq!(has_traces(folder.path()), is_trace, "{file}");
        }
    }
}
