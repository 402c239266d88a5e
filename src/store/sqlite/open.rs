//! Opening a database.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::connection::connect;
use super::disk::atomic_file::{folder_of, sync_folder};
use super::disk::data_dir::{FILE, LOCK, create_data_dir, has_content, missing, own_file, unavailable};
use super::disk::files::Files;
use super::disk::generation::{self, Generations};
use super::disk::lock::{Locks, lock, require_database};
use super::disk::wal_index::WalIndex;
use super::read_only::ReadOnly;
use super::readers::Readers;
use super::write::wal;
use super::write::writer::Writer;
use super::{Options, Sqlite, Writes, migrations, rows};
use crate::domain::Deployment;
use crate::store::{BackupStatus, Result, StoreError, deployment};

// Older ones have the WAL-reset bug, which can corrupt a database (sqlite.org/wal.html, "The WAL-reset bug").
const _: () = assert!(rusqlite::ffi::SQLITE_VERSION_NUMBER >= 3_051_003);

impl Sqlite {
    /// Opens the database of a data directory and migrates its schema. Creates the database if `options` allow it.
    pub fn open(options: &Options) -> Result<Self> {
        Self::open_with(options, |conn, writer| writer.start(conn))
    }

    /// Opens a database like [`Self::open`], and passes the writer to `start`, with its connection.
    pub fn open_with(options: &Options, start: impl FnOnce(Connection, Writer) -> Result<()>) -> Result<Self> {
        let (data_dir, file) = (&*options.data_dir, options.data_dir.join(FILE));
        if options.create.is_some() {
            create_data_dir(data_dir)?;
        } else {
            require_database(data_dir)?;
        }
        // Processes that start together create and migrate the database one after another.
        let Some(Locks { opening, in_use, is_alone, checked }) = lock(data_dir)? else {
            return Self::open_read_only(&file, options);
        };
        // SQLite's other files get the mode of this file. Its content is durable only if its name is.
        if !has_content(&file) {
            checked.check_names()?;
            own_file(&file).map_err(unavailable(data_dir))?;
        }
        if options.durable {
            sync_folder(data_dir).map_err(unavailable(data_dir))?;
        }
        let mut conn = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // SQLite opens the log with the first read, and removes that of an empty file.
        checked.check_names()?;
        conn.busy_timeout(options.busy_timeout)?;
        migrations::refuse_foreign(&conn).map_err(|error| match error {
            StoreError::Failed(why) => StoreError::Failed(format!("{}: {why}", file.display())),
            error => error,
        })?;
        checked.check_names()?;
        generation::check_opened(&opening, data_dir, &conn)?;
        // We hold the lock, so any process that was creating the database has finished.
        if options.create.is_none() && migrations::is_new(&conn)? {
            return Err(missing(data_dir));
        }
        // FULL: a commit is durable before it is acknowledged. Before the change to WAL, which syncs, too.
        conn.pragma_update(None, "synchronous", if options.durable { "FULL" } else { "OFF" })?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // The WAL is truncated to 64 MiB after a burst.
        conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        // 64 MiB would hold 40 MB more, and save 1.5 reads per order of scattered animals among a million, and no others.
        conn.pragma_update(None, "cache_size", -8_192)?;
        // A savepoint costs a write a tenth of its instructions unless its journal may become a file. SQLite unlinks its
        // temporary files once they are open.
        if let Some(folder) = folder_of(&file).to_str() {
            conn.pragma_update(None, "temp_store_directory", folder)?;
            conn.pragma_update(None, "temp_store", "FILE")?;
        }
        let mut generations = if options.durable { Generations::open(&opening, data_dir, is_alone)? } else { None };
        if let Some(generations) = &generations
            && !migrations::status(&conn)?.iter().all(|migration| migration.applied)
        {
            generations.allow_any_log(&conn)?;
        }
        migrations::run(&mut conn, options.create.map(|create| options.deployment.unwrap_or(create)))?;
        let deployment = stored_deployment(&conn, options.deployment)?;
        let id = stored_id(&conn)?;
        let files = Arc::new(Files::of(&file, &["", "-wal", "-shm"])?);
        checked.check_names()?;
        wal::sync_recovered(&conn).inspect_err(|_| files.mark_failed_sync())?;
        if let Some(generations) = &mut generations {
            generations.begin(&conn)?;
        }
        // The generations keep the file open.
        opening.unlock().map_err(unavailable(data_dir))?;
        conn.busy_timeout(wal::LOCK_POLL)?;

        let wal_index = Arc::new(WalIndex::open(&file)?);
        let read = || connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let readers = Arc::new(Readers::open(options.readers, read, Arc::clone(&wal_index))?);
        let (queue, writer) =
            Writer::new(Arc::clone(&readers), wal_index, Arc::clone(&files), generations.map(Arc::new), options);
        start(conn, writer)?;
        let backups = BackupStatus::default();
        let (writes, durable) = (Writes::Accepted(queue), options.durable);
        Ok(Self { file, files, deployment, id, durable, writes, readers, backups, _in_use: Some(in_use) })
    }

    fn open_read_only(file: &Path, options: &Options) -> Result<Self> {
        generation::check(&options.data_dir)?;
        let read_only = ReadOnly::of(file, &options.data_dir.join(LOCK))?;
        let readers = Arc::new(read_only.open(file, options.readers)?);
        let deployment = readers.read(|conn| stored_deployment(conn, options.deployment))?;
        tracing::warn!("disk is read-only, refusing writes");
        Ok(Self {
            file: file.to_owned(),
            files: Arc::new(read_only.files(file)?),
            deployment,
            id: readers.read(stored_id)?,
            durable: true,
            writes: Writes::Refused(read_only),
            readers,
            backups: BackupStatus::default(),
            // On a read-only disk, nobody can replace the database.
            _in_use: None,
        })
    }
}

/// Connects to a database without migrating it. Also returns the lock that keeps others from replacing it, which must be
/// released after the connection.
pub fn connect_unmigrated(data_dir: &Path) -> Result<(Option<File>, Connection)> {
    require_database(data_dir)?;
    let file = data_dir.join(FILE);
    match lock(data_dir)? {
        Some(Locks { in_use, opening, checked, .. }) => {
            let conn = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            checked.check_names()?;
            // With the first read, SQLite opens the log. A file that is not a database fails later, with its own error.
            let opened = generation::check_opened(&opening, data_dir, &conn);
            checked.check_names()?;
            if let Err(error @ StoreError::Failed(_)) = opened {
                return Err(error);
            }
            Ok((Some(in_use), conn))
        }
        None => Ok((None, ReadOnly::of(&file, &data_dir.join(LOCK))?.connect(&file)?)),
    }
}

/// Returns the deployment that a database was created for. Fails if it is not `expected`.
pub fn stored_deployment(conn: &Connection, expected: Option<Deployment>) -> Result<Deployment> {
    let stored: Option<String> = rows::first(conn, deployment::FIND, [], |row| row.get(0))?;
    deployment::check(stored.as_deref(), expected)
}

fn stored_id(conn: &Connection) -> Result<String> {
    Ok(deployment::id(rows::first(conn, deployment::FIND_ID, [], |row| row.get(0))?))
}
