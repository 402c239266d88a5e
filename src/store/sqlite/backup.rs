//! Backup and restore. A copy is of one moment, complete and checked before it gets its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::backup::StepResult;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::connection::connect;
use super::disk::atomic_file::{self, AtomicFile, sync_folder};
use super::disk::data_dir::{
    FILE, LOCK, beside, create_data_dir, has_content, outside_stores, refuse_link, refuse_special_file, unavailable,
};
use super::disk::files::Files;
use super::disk::generation;
use super::disk::lock::lock_file;
use super::open::{connect_unmigrated, stored_deployment};
use super::{Sqlite, migrations};
use crate::domain::{Action, Actor, Deployment};
use crate::store::audit;
use crate::store::audit::of_path;
use crate::store::keys;
use crate::store::{Result, StoreError};

/// Number of pages (of 4 KiB) copied between two calls of the progress function.
const STEP: i32 = 1_024;

/// Length of the write-ahead log at which a backup gives up: half of the length at which the service refuses writes. The
/// log cannot be written back during a backup.
const LONGEST_LOG: u64 = 512 << 20;

/// Interval at which an integrity check asks whether to continue.
const POLL: Duration = Duration::from_millis(50);

/// Receives the bytes copied and their total. Returns whether to continue.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Content of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub deployment: Deployment,
    pub bytes: u64,
}

/// Destination of a backup.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub file: &'a Path,
    /// Replaces an existing file if true.
    pub replace: bool,
}

impl Sqlite {
    /// Copies the database while it is in use. Blocks until the copy is complete.
    pub fn back_up(&self, target: Target<'_>, progress: Progress<'_>) -> Result<Copied> {
        back_up_from(&connect(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)?, &self.file, target, progress)
    }
}

/// Copies the database of a data directory, even while a service uses it. An older schema is copied unchanged, so that a
/// newer program can make the backup before an upgrade.
pub fn back_up(
    data_dir: &Path,
    deployment: Option<Deployment>,
    target: Target<'_>,
    progress: Progress<'_>,
) -> Result<Copied> {
    let (_in_use, conn) = connect_unmigrated(data_dir)?;
    check_content(&conn, deployment)?;
    back_up_from(&conn, &data_dir.join(FILE), target, progress)
}

fn back_up_from(conn: &Connection, file: &Path, target: Target<'_>, progress: Progress<'_>) -> Result<Copied> {
    let folder = atomic_file::folder_of(target.file);
    outside_stores(target.file, atomic_file::folder_of(file)).map_err(failed(target.file))?;
    match target.file.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(target.file)(error)),
        Ok(_) if !target.replace => return Err(exists(target.file)),
        Ok(there) if there.is_file() => {}
        // The backup would replace the device or link instead of writing to its target.
        Ok(_) => return Err(StoreError::Failed(format!("{} is not a regular file", target.file.display()))),
    }
    let log = beside(file, "-wal");
    let length = || log.metadata().map_or(0, |log| log.len());
    let at_most = length().max(LONGEST_LOG);
    let partial = AtomicFile::in_folder(folder).map_err(failed(folder))?;
    let copied = checked_copy(conn, partial.path(), None, &mut |done, of| match progress(done, of) {
        false => Err(stopped()),
        true if done < of && length() > at_most => {
            Err(StoreError::Failed("too much was written during the backup; try again at a quieter time".into()))
        }
        true => Ok(()),
    })?;
    // The copy may have pages that the disk has lost.
    Files::of(file, &[])?.check_syncs()?;
    partial.publish(target.file, target.replace).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(target.file),
        _ => failed(target.file)(error),
    })?;
    Ok(copied)
}

/// Replaces a data directory's database by a backup. Fails if another process has the database open. If the process
/// fails or is killed, the directory holds the old database or the new one, whole:
///
/// 1. The backup is copied into an unfinished file and checked. The restore is recorded there.
/// 2. The old database becomes a single file: SQLite applies its write-ahead log or its rollback journal. Not if they do not
///    belong together.
/// 3. The old log, index and journal are removed, because SQLite would apply them to the new file, and the directory is
///    synced.
/// 4. The new file is synced and renamed, and the directory is synced.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    deployment: Option<Deployment>,
    replace: bool,
    actor: &Actor,
    progress: Progress<'_>,
) -> Result<Copied> {
    fs::metadata(backup).map_err(failed(backup))?;
    refuse_special_file(backup)?;
    let of_backup = |error| StoreError::Failed(format!("{}: {error}", backup.display()));
    let source = Connection::open_with_flags(backup, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // Before anything is created.
    check_content(&source, deployment).map_err(of_backup)?;
    create_data_dir(data_dir)?;
    // Processes that open the database from now on wait. Processes that have it open hold the folder's lock.
    let opening = lock_file(data_dir).map_err(unavailable(&data_dir.join(LOCK)))?;
    let folder = File::open(data_dir).map_err(unavailable(data_dir))?;
    folder.try_lock().map_err(|_| in_use(data_dir))?;
    let file = data_dir.join(FILE);
    refuse_link(&file)?;
    let is_there = has_content(&file);
    let belongs = generation::check(data_dir);
    if (is_there || belongs.is_err()) && !replace {
        let dir = data_dir.display();
        return Err(StoreError::Failed(format!("there is a database in {dir}; use --force to replace it")));
    }
    let partial = AtomicFile::in_folder(data_dir).map_err(unavailable(data_dir))?;
    let copied = checked_copy(&source, partial.path(), deployment, &mut |done, of| match progress(done, of) {
        true => Ok(()),
        false => Err(stopped()),
    });
    let copied = copied.map_err(of_backup)?;
    let restored = open_unpublished(partial.path())?;
    end_sessions(&restored)?;
    audit::sqlite::record(&restored, actor, Action::RestoreStore, &of_path(backup))?;
    drop(restored);
    // SQLite ignores the log and the journal of an empty file.
    if is_there || belongs.is_err() {
        generation::allow_any(&opening).map_err(unavailable(&data_dir.join(LOCK)))?;
    }
    if is_there && belongs.is_ok() {
        close_old(&file, data_dir)?;
        if deployment.is_none() {
            refuse_other_deployment(&file, copied.deployment)?;
        }
    }
    remove_beside(&file)?;
    sync_folder(data_dir).map_err(unavailable(data_dir))?;
    partial.publish(&file, true).map_err(unavailable(&file))?;
    if let Err(error) = generation::record_restored(&opening) {
        tracing::warn!(%error, "a log of the old database would not be refused");
    }
    Ok(copied)
}

/// Deletes all sessions. Otherwise sessions that were ended since the backup, perhaps because they were stolen, would be
/// valid again.
fn end_sessions(restored: &Connection) -> Result<()> {
    restored.execute("DELETE FROM sessions", [])?;
    Ok(())
}

/// Turns the database that is about to be replaced into a single file, synced to the disk. Fails if another process has
/// it open, even one of another program, because SQLite then refuses to leave WAL mode.
fn close_old(file: &Path, data_dir: &Path) -> Result<()> {
    let mode = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|conn| conn.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get::<_, String>(0)));
    match mode {
        Ok(mode) if mode == "delete" => Ok(()),
        Ok(_) => Err(in_use(data_dir)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Err(in_use(data_dir)),
            // A broken database may be replaced.
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Ok(()),
            // The database may be intact, and its log or journal may hold part of it.
            _ => {
                let file = file.display();
                Err(StoreError::Failed(format!(
                    "cannot close the old database: {error}; nothing was replaced. Fix the cause, or move {file} away \
                     together with {file}-wal and {file}-journal"
                )))
            }
        },
    }
}

/// Fails if the database that is about to be replaced has another deployment. A broken one may be replaced.
fn refuse_other_deployment(file: &Path, new: Deployment) -> Result<()> {
    let old = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match stored_deployment(&old, None) {
        Ok(old) if old != new => Err(StoreError::Failed(format!(
            "the backup is of a {new} database and would replace a {old} one; nothing was replaced. If that is what \
             you want, add --deployment {new}"
        ))),
        _ => Ok(()),
    }
}

/// Removes the files that SQLite keeps beside a database.
fn remove_beside(file: &Path) -> Result<()> {
    for suffix in ["-journal", "-wal", "-shm"] {
        let left = beside(file, suffix);
        match fs::remove_file(&left) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let why = format!("cannot remove {}: {error}; nothing was replaced", left.display());
                return Err(StoreError::Failed(why));
            }
            _ => {}
        }
    }
    Ok(())
}

fn in_use(data_dir: &Path) -> StoreError {
    let dir = data_dir.display();
    StoreError::Failed(format!(
        "the database in {dir} is in use: stop the service and every other program that has it open"
    ))
}

/// Returns the conversion of an error of the backup's own file, not of the database.
fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Failed(format!("{}: {error}", path.display()))
}

fn stopped() -> StoreError {
    StoreError::Failed("the copy was stopped".into())
}

fn exists(file: &Path) -> StoreError {
    StoreError::Failed(format!("{} already exists; use --force to replace it", file.display()))
}

/// Opens a file that is not yet published. It needs no journal, because it is discarded after a crash, and is synced before
/// it gets its name.
fn open_unpublished(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    conn.pragma_update(None, "journal_mode", "OFF")?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    Ok(conn)
}

/// Copies what `source` sees now into an empty file, and checks that the copy is intact, that this program can open it,
/// and that its deployment is `expected`. Calls `proceed` from time to time with the bytes copied and their total, and
/// stops if that fails.
fn checked_copy(
    source: &Connection,
    to: &Path,
    expected: Option<Deployment>,
    proceed: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Copied> {
    // With one transaction, the copy is of one moment, and commits of others do not restart it.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let mut copy = open_unpublished(to)?;
    let copied = copy_pages(source, &mut copy, proceed);
    source.execute_batch("ROLLBACK")?;
    copied.and_then(|()| generation::without_number(&copy))?;
    drop(copy);

    atomic_file::without_log(to).map_err(unavailable(to))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(to, flags)?;
    let bytes = to.metadata().map_err(unavailable(to))?.len();
    check_integrity(&mut conn, &mut || proceed(bytes, bytes))?;
    Ok(Copied { deployment: check_content(&conn, expected)?, bytes })
}

/// Checks that this program can serve a database once it is migrated. Returns its deployment, which must be `expected`.
fn check_content(conn: &Connection, expected: Option<Deployment>) -> Result<Deployment> {
    migrations::verify(conn)?;
    keys::sqlite::version(conn)?;
    stored_deployment(conn, expected)
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
            _ => return Err(StoreError::Unavailable("the database is locked".into())),
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
                    return Err(StoreError::Failed("the integrity check panicked".into()));
                }
            }
        }
    })?;
    match verdict.as_str() {
        "ok" => Ok(()),
        damage => Err(StoreError::Failed(format!("the database is damaged: {damage}"))),
    }
}
