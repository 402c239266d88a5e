//! Backup and restore. A copy is of one moment, complete and checked before it gets its name.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::backup::StepResult;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};

use crate::connection::{connect, open_file};
use crate::database::Database;
use crate::disk::atomic_file::{AtomicFile, folder_of, sync_folder};
use crate::disk::folder::{
    Folder, FolderLock, beside, give_to_owner, has_content, if_there, refuse_link, refuse_special_file, unavailable,
};
use crate::disk::generation;
use crate::disk::lock::{lock_file, repeated};
use crate::open::connect_unmigrated;
use crate::schema::Schema;
use crate::{Error, Result};

/// Number of pages (of 4 KiB) copied between two calls of the progress function.
const STEP: i32 = 1_024;

/// Length of the write-ahead log at which a backup gives up: half of the length at which the service refuses writes. The
/// log cannot be written back during a backup.
const LONGEST_LOG: u64 = 512 << 20;

/// Interval at which an integrity check asks whether to continue.
const POLL: Duration = Duration::from_millis(50);

/// Receives the bytes copied and their total. Returns whether to continue.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Destination of a backup.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The file to create. It must not be one of the database: see [`Folder::outside`].
    pub file: &'a Path,
    /// Replaces an existing file if true.
    pub replace: bool,
}

impl Database {
    /// Copies the database while it is in use, with every write that was acknowledged before. Blocks until the copy is
    /// complete, checked and durable. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there is a file that must not be replaced. [`Error::Failed`] if `progress` returns false, the copy
    /// is damaged, the schema rejects it, or the write-ahead log, which cannot be written back meanwhile, grows beyond 512 MiB.
    pub fn back_up(&self, target: Target<'_>, schema: &impl Schema, progress: Progress<'_>) -> Result<u64> {
        let conn = connect(&self.folder().database(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        back_up_from(&conn, self.folder(), target, schema, progress)
    }
}

/// Copies a database like [`Database::back_up`], even while services of other processes use it. An older schema is copied
/// unchanged, so that a newer program can make the backup before an upgrade.
///
/// # Errors
///
/// Those of [`Database::back_up`] and of [`connect_unmigrated`].
pub fn back_up_unmigrated(from: &Folder, to: Target<'_>, schema: &impl Schema, progress: Progress<'_>) -> Result<u64> {
    let (_in_use, conn) = connect_unmigrated(from)?;
    schema.verify(&conn)?;
    back_up_from(&conn, from, to, schema, progress)
}

fn back_up_from(
    conn: &Connection,
    database: &Folder,
    target: Target<'_>,
    schema: &impl Schema,
    progress: Progress<'_>,
) -> Result<u64> {
    let folder = folder_of(target.file);
    database.outside(target.file).map_err(failed(target.file))?;
    match if_there(target.file.symlink_metadata()).map_err(failed(target.file))? {
        // The backup would replace the device or link instead of writing to its target.
        Some(there) if !there.is_file() => {
            return Err(Error::Failed(format!("{} is not a regular file", target.file.display())));
        }
        Some(_) if !target.replace => return Err(exists(target.file)),
        _ => {}
    }
    let log = database.log();
    let length = || log.metadata().map_or(0, |log| log.len());
    let at_most = length().max(LONGEST_LOG);
    let partial = AtomicFile::in_folder(folder, database.name()).map_err(failed(folder))?;
    let copied = checked_copy(conn, partial.path(), schema, progress, || length() > at_most);
    let copied = copied.map_err(not_copied(database.dir().display(), target.file))?;
    // The copy may have pages that the disk has lost.
    database.check_syncs()?;
    partial.publish(target.file, target.replace).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(target.file),
        _ => failed(target.file)(error),
    })?;
    Ok(copied)
}

/// Replaces the database of a folder by a backup. Returns its size in bytes. If the process fails or is killed, the folder
/// holds the old database or the new one, whole:
///
/// 1. The backup is copied into an unfinished file and checked. `before_publish` may change it, for example record the
///    restore.
/// 2. The old database becomes a single file: SQLite applies its write-ahead log or its rollback journal. Not if they do not
///    belong together.
/// 3. The old log, index and journal are removed, because SQLite would apply them to the new file, and the folder is synced.
/// 4. The new file is synced and renamed, and the folder is synced.
///
/// # Errors
///
/// [`Error::Exists`] if the folder has a database and `replace` is false. [`Error::Failed`] if any process has the database
/// open, `progress` returns false, or the backup is damaged. [`Error::Apart`] if it is no backup but a database, with a log
/// that does not continue it. Those of `schema` and `before_publish`.
pub fn restore(
    backup: &Path,
    folder: &Folder,
    schema: &impl Schema,
    replace: bool,
    before_publish: impl FnOnce(&Connection) -> Result<()>,
    progress: Progress<'_>,
) -> Result<u64> {
    let dir = folder.dir();
    refuse_special_file(backup)?;
    access(backup, Access::READ_OK).map_err(|error| failed(backup)(error.into()))?;
    let of_backup = |error| Error::Failed(format!("{}: {error}", backup.display()));
    // A copy of a database's files may have the file of one moment and the log of another. Nothing is open yet.
    let beside_it = Folder::new(folder_of(backup), folder.name());
    let has_files = beside_it.lock().exists() || has_content(&beside_it.log());
    let is_own = has_files && backup.file_name() == beside_it.database().file_name();
    let belongs_to_log = if is_own { repeated(false, || generation::check(&beside_it)) } else { Ok(()) };
    let source = open_file(backup, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // Before anything is created.
    schema.verify(&source).map_err(of_backup)?;
    if generation::number(&source)? != 0 {
        belongs_to_log?;
    }
    folder.create()?;
    // Processes that open the database from now on wait. Processes that have it open hold the folder's lock.
    let opening = lock_file(folder).map_err(unavailable(&folder.lock()))?;
    let held = FolderLock(File::open(dir).map_err(unavailable(dir))?);
    held.0.try_lock().map_err(|_| in_use(dir))?;
    let file = folder.database();
    refuse_link(&file)?;
    let is_there = has_content(&file);
    let belongs = generation::check(folder);
    if (is_there || belongs.is_err()) && !replace {
        return Err(Error::Exists(format!("there is a database in {}", dir.display())));
    }
    let mut partial = AtomicFile::in_folder(dir, folder.name()).map_err(unavailable(dir))?;
    give_to_owner(partial.file(), dir);
    let copied = checked_copy(&source, partial.path(), schema, progress, || false);
    let copied = copied.map_err(not_copied("it", dir)).map_err(of_backup)?;
    let restored = open_unpublished(partial.path())?;
    before_publish(&restored)?;
    drop(restored);
    // SQLite ignores the log and the journal of an empty file.
    if is_there || belongs.is_err() {
        generation::allow_any(&opening).map_err(unavailable(&folder.lock()))?;
    }
    if is_there && belongs.is_ok() {
        close_old(&file, dir)?;
        schema.may_replace(&open_file(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)?)?;
    }
    remove_beside(&file)?;
    sync_folder(dir).map_err(unavailable(dir))?;
    partial.publish(&file, true).map_err(unavailable(&file))?;
    if let Err(error) = generation::record_restored(&opening) {
        tracing::warn!(%error, "a log of the old database would not be refused");
    }
    Ok(copied)
}

/// Turns the database that is about to be replaced into a single file, synced to the disk. Fails if another process has
/// it open, even one of another program, because SQLite then refuses to leave WAL mode.
fn close_old(file: &Path, dir: &Path) -> Result<()> {
    let mode = open_file(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|conn| conn.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get::<_, String>(0)));
    match mode {
        Ok(mode) if mode == "delete" => Ok(()),
        Ok(_) => Err(in_use(dir)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Err(in_use(dir)),
            // A broken database may be replaced.
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Ok(()),
            // The database may be intact, and its log or journal may hold part of it.
            _ => {
                let file = file.display();
                Err(Error::Failed(format!(
                    "cannot close the old database: {error}; nothing was replaced. Fix the cause, or move {file} away \
                     together with {file}-wal and {file}-journal"
                )))
            }
        },
    }
}

/// Removes the files that SQLite keeps beside a database.
fn remove_beside(file: &Path) -> Result<()> {
    for suffix in ["-journal", "-wal", "-shm"] {
        let left = beside(file, suffix);
        let why = |error| Error::Failed(format!("cannot remove {}: {error}; nothing was replaced", left.display()));
        if_there(fs::remove_file(&left)).map_err(why)?;
    }
    Ok(())
}

fn in_use(dir: &Path) -> Error {
    let dir = dir.display();
    Error::Failed(format!("the database in {dir} is in use: stop the service and every other program that has it open"))
}

/// Returns the conversion of an error of the backup's own file, not of the database.
fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::Failed(format!("{}: {error}", path.display()))
}

/// Names both places if a disk failed, because one of them may be full or broken.
fn not_copied(from: impl Display, to: &Path) -> impl Fn(Error) -> Error {
    move |error| match error {
        Error::Unavailable(why) => Error::Failed(format!("cannot copy {from} to {}: {why}", to.display())),
        other => other,
    }
}

fn exists(file: &Path) -> Error {
    Error::Exists(format!("{} already exists", file.display()))
}

/// Opens a file that is not yet published. It needs no journal, because it is discarded after a crash, and is synced before
/// it gets its name.
fn open_unpublished(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = open_file(file, flags)?;
    conn.pragma_update(None, "journal_mode", "OFF")?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    Ok(conn)
}

/// Copies what `source` sees now into an empty file, and checks that the copy is intact and `schema` accepts it. Stops if
/// `progress` returns false, or if `is_log_too_long` returns true before all is copied.
fn checked_copy(
    source: &Connection,
    to: &Path,
    schema: &impl Schema,
    progress: Progress<'_>,
    is_log_too_long: impl Fn() -> bool,
) -> Result<u64> {
    let mut proceed = |done, of| match progress(done, of) {
        false => Err(Error::Failed("the copy was stopped".into())),
        true if done < of && is_log_too_long() => {
            Err(Error::Failed("too much was written during the backup; try again at a quieter time".into()))
        }
        true => Ok(()),
    };
    // With one transaction, the copy is of one moment, and commits of others do not restart it.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let mut copy = open_unpublished(to)?;
    let copied = copy_pages(source, &mut copy, &mut proceed);
    source.execute_batch("ROLLBACK")?;
    copied.and_then(|()| generation::without_number(&copy))?;
    drop(copy);

    // Marks the copy as having no write-ahead log (sqlite.org/fileformat2.html, section 1.3.3). It is then a single file, and
    // readable in a folder where no other file can be created.
    let marked = File::options().write(true).open(to).and_then(|copy| copy.write_all_at(&[1, 1], 18));
    marked.map_err(unavailable(to))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = open_file(to, flags)?;
    let bytes = to.metadata().map_err(unavailable(to))?.len();
    check_integrity(&mut conn, &mut || proceed(bytes, bytes))?;
    schema.verify(&conn)?;
    Ok(bytes)
}

/// Copies page by page, so that every id stays the same.
fn copy_pages(source: &Connection, to: &mut Connection, proceed: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
    let page: i64 = source.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let bytes = |pages: i32| i64::from(pages).unsigned_abs() * page.unsigned_abs();
    let backup = rusqlite::backup::Backup::new(source, to)?;
    loop {
        let step = backup.step(STEP)?;
        let now = backup.progress();
        proceed(bytes(now.pagecount - now.remaining), bytes(now.pagecount))?;
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Unexpected, because the transaction is open.
            _ => return Err(Error::Unavailable("the database is locked".into())),
        }
    }
}

/// Runs SQLite's own check, which may take as long as the copy. Interrupts the check if `proceed` fails.
fn check_integrity(conn: &mut Connection, proceed: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let interrupt = conn.get_interrupt_handle();
    let (done, ended) = mpsc::channel();
    let verdict: String = thread::scope(|scope| {
        scope.spawn(move || done.send(conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))));
        loop {
            match ended.recv_timeout(POLL) {
                Ok(verdict) => return Ok(verdict?),
                Err(RecvTimeoutError::Timeout) => proceed().inspect_err(|_| interrupt.interrupt())?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Failed("the integrity check panicked".into()));
                }
            }
        }
    })?;
    match verdict.as_str() {
        "ok" => Ok(()),
        damage => Err(Error::Failed(format!("the database is damaged: {damage}"))),
    }
}
