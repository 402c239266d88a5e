//! Opening a database.

use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use crate::connection::connect;
use crate::database::{Database, Writes};
use crate::disk::atomic_file::sync_folder;
use crate::disk::files::Files;
use crate::disk::folder::{Folder, FolderLock, has_content, own_file, unavailable};
use crate::disk::generation::{self, Generations};
use crate::disk::lock::{Locks, claim, lock, repeated, require_database};
use crate::disk::wal_index::WalIndex;
use crate::read_only::ReadOnly;
use crate::readers::Readers;
use crate::schema::Schema;
use crate::write::wal;
use crate::write::writer::Writer;
use crate::{Error, Options, Result};

// Older ones have the WAL-reset bug, which can corrupt a database (sqlite.org/wal.html, "The WAL-reset bug").
const _: () = assert!(rusqlite::ffi::SQLITE_VERSION_NUMBER >= 3_051_003);

impl Database {
    /// Opens the database of a folder and migrates its schema. Creates it if [`Options::create`] is true. On a read-only disk,
    /// a database whose schema is current is opened for reads. Blocks the thread, for as long as other processes open the
    /// database or the schema is migrated. SQLite's temporary files are in the folder from now on, for the whole process.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`], [`Error::Link`], [`Error::Apart`] if the files of the folder do not belong together, and those of
    /// `schema`. [`Error::Unavailable`] if the disk fails, another process is in the way, or this process has the database open,
    /// which lasts after a drop until the writer has stopped.
    pub fn open(folder: &Folder, options: &Options, schema: &impl Schema) -> Result<Self> {
        Self::open_with(folder, options, schema, false, |conn, writer| writer.start(conn))
    }

    /// Opens a database like [`Self::open`], and passes the writer to `start`, with its connection. For simulations of several
    /// processes, which may have a database open more than once if `simulated`.
    #[doc(hidden)]
    pub fn open_with(
        folder: &Folder,
        options: &Options,
        schema: &impl Schema,
        simulated: bool,
        start: impl FnOnce(Connection, Writer) -> Result<()>,
    ) -> Result<Self> {
        let (dir, file) = (folder.dir(), folder.database());
        if options.create {
            folder.create()?;
        } else {
            require_database(folder)?;
        }
        // Processes that start together create and migrate the database one after another.
        let Some(Locks { opening, in_use, is_alone, checked }) = lock(folder, simulated)? else {
            return Self::open_read_only(folder, options, schema, simulated);
        };
        // SQLite's other files get the mode of this file. Its content is durable only if its name is.
        if !has_content(&file) {
            checked.check_names()?;
            own_file(&file).map_err(unavailable(dir))?;
        }
        if options.durable {
            sync_folder(dir).map_err(unavailable(dir))?;
        }
        let mut conn = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // SQLite opens the log with the first read, and removes that of an empty file.
        checked.check_names()?;
        conn.busy_timeout(options.busy_timeout)?;
        schema.refuse_foreign(&conn).map_err(|error| match error {
            Error::Failed(why) => Error::Failed(format!("{}: {why}", file.display())),
            error => error,
        })?;
        checked.check_names()?;
        repeated(is_alone, || generation::check_opened(&opening, folder, &conn))?;
        // We hold the lock, so any process that was creating the database has finished.
        if !options.create && schema.is_new(&conn)? {
            return Err(Error::Missing(dir.to_owned()));
        }
        // FULL: a commit is durable before it is acknowledged. Before the change to WAL, which syncs, too.
        conn.pragma_update(None, "synchronous", if options.durable { "FULL" } else { "OFF" })?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // The WAL is truncated to 64 MiB after a burst.
        conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        // A cache of 64 MiB would hold 40 MB more, and save 1.5 reads per change of scattered rows among a million, and no others.
        conn.pragma_update(None, "cache_size", -8_192)?;
        // A savepoint costs a write a tenth of its instructions unless its journal may become a file. SQLite unlinks its
        // temporary files once they are open.
        if let Some(path) = dir.to_str() {
            conn.pragma_update(None, "temp_store_directory", path)?;
            conn.pragma_update(None, "temp_store", "FILE")?;
        }
        let mut generations = if options.durable { Generations::open(&opening, folder, is_alone)? } else { None };
        if let Some(generations) = &generations
            && !schema.is_current(&conn)?
        {
            generations.allow_any_log(&conn)?;
        }
        schema.migrate(&mut conn)?;
        let files = Arc::new(Files::of(folder, &["", "-wal", "-shm"])?);
        checked.check_names()?;
        wal::sync_recovered(&conn).inspect_err(|_| files.mark_failed_sync())?;
        if let Some(generations) = &mut generations {
            generations.begin(&conn)?;
        }
        // The generations keep the file open.
        opening.unlock().map_err(unavailable(dir))?;
        conn.busy_timeout(wal::LOCK_POLL)?;

        let wal_index = Arc::new(WalIndex::open(&file)?);
        let read = || connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let readers = Arc::new(Readers::open(options, true, read, Arc::clone(&wal_index), in_use)?);
        let generations = generations.map(Arc::new);
        let (queue, writer) = Writer::new(Arc::clone(&readers), wal_index, Arc::clone(&files), generations, options);
        start(conn, writer)?;
        Ok(Self { files, writes: Writes::Accepted(queue), readers })
    }

    fn open_read_only(folder: &Folder, options: &Options, schema: &impl Schema, simulated: bool) -> Result<Self> {
        // Not locked: on a read-only disk, nobody can replace the database. If the disk is read-only for this process alone,
        // this process ends once another has replaced the database.
        let in_use = claim(folder.dir(), simulated)?;
        generation::check(folder)?;
        let read_only = ReadOnly::of(folder)?;
        let readers = Arc::new(read_only.open(options, schema, in_use)?);
        tracing::warn!("disk is read-only, refusing writes");
        let files = Arc::new(read_only.files()?);
        Ok(Self { files, writes: Writes::Refused(Box::new(read_only)), readers })
    }
}

/// Connects to a database without migrating it, for a look at its schema. Also returns the lock that keeps others from
/// replacing it, and this process from opening it again. It must be released after the connection.
///
/// # Errors
///
/// Those of [`Database::open`] that do not concern the schema.
pub fn connect_unmigrated(folder: &Folder) -> Result<(Arc<FolderLock>, Connection)> {
    require_database(folder)?;
    let Some(Locks { in_use, opening, is_alone, checked }) = lock(folder, false)? else {
        return Ok((claim(folder.dir(), false)?, ReadOnly::of(folder)?.connect()?));
    };
    let conn = connect(&folder.database(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    checked.check_names()?;
    // With the first read, SQLite opens the log. A file that is not a database fails later, with its own error.
    let opened = repeated(is_alone, || generation::check_opened(&opening, folder, &conn));
    checked.check_names()?;
    if let Err(error @ (Error::Failed(_) | Error::Apart { .. })) = opened {
        return Err(error);
    }
    Ok((in_use, conn))
}
