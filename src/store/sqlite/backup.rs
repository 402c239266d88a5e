//! Backup and restore. A copy is of one moment, complete and checked before it gets its name.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::backup::StepResult;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::atomic_file::{self, AtomicFile};
use super::{
    FILE, LOCK, Sqlite, beside, connect, create_data_dir, has_content, lock_file, migrations, refuse_special_file,
    stored_deployment, sync_folder, unavailable, without_migrating,
};
use crate::domain::Deployment;
use crate::store::{Result, StoreError, deployment};

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
    /// Whether to replace an existing file.
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
    let (conn, _in_use) = without_migrating(data_dir)?;
    migrations::refuse_newer(&conn)?;
    if let Some(kept) = stored_deployment(&conn)? {
        deployment::agree(kept, deployment)?;
    }
    back_up_from(&conn, &data_dir.join(FILE), target, progress)
}

fn back_up_from(conn: &Connection, file: &Path, target: Target<'_>, progress: Progress<'_>) -> Result<Copied> {
    let folder = atomic_file::folder_of(target.file);
    let own = |folder: &Path| fs::canonicalize(folder).ok();
    let name = target.file.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    if own(folder) == own(atomic_file::folder_of(file)) && name.starts_with("petstore.") {
        return Err(StoreError::Failed(format!("{} is the service's own file", target.file.display())));
    }
    match target.file.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(target.file, &error)),
        Ok(_) if !target.replace => return Err(exists(target.file)),
        Ok(there) if there.is_file() => {}
        // The backup would replace the device or link instead of writing to its target.
        Ok(_) => return Err(StoreError::Failed(format!("{} is no regular file", target.file.display()))),
    }
    let log = beside(file, "-wal");
    let length = || log.metadata().map_or(0, |log| log.len());
    let at_most = length().max(LONGEST_LOG);
    let partial = AtomicFile::in_folder(folder).map_err(|error| failed(folder, &error))?;
    copy(conn, partial.path(), &mut |done, of| match progress(done, of) {
        false => Err(stopped()),
        true if length() > at_most => {
            Err(StoreError::Failed("too much was written during the backup; try again at a quieter time".into()))
        }
        true => Ok(()),
    })?;
    let copied = check(partial.path(), &mut |bytes| match progress(bytes, bytes) {
        true => Ok(()),
        false => Err(stopped()),
    })?;
    partial.publish(target.file, target.replace).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(target.file),
        _ => failed(target.file, &error),
    })?;
    Ok(copied)
}

/// Replaces a data directory's database by a backup. Fails if another process has the database open. If the process
/// fails or is killed, the directory holds the old database or the new one, whole:
///
/// 1. The backup is copied into an unfinished file and checked.
/// 2. The old database becomes a single file: SQLite applies its write-ahead log or its rollback journal.
/// 3. The old log, index and journal are removed, because SQLite would apply them to the new file, and the directory is
///    synced.
/// 4. The new file is synced and renamed, and the directory is synced.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    deployment: Option<Deployment>,
    replace: bool,
    progress: Progress<'_>,
) -> Result<Copied> {
    fs::metadata(backup).map_err(|error| failed(backup, &error))?;
    refuse_special_file(backup)?;
    create_data_dir(data_dir)?;
    // Processes that open the database from now on wait. Processes that have it open hold the folder's lock.
    let _opening = lock_file(data_dir).map_err(|error| unavailable(&data_dir.join(LOCK), &error))?;
    let folder = fs::File::open(data_dir).map_err(|error| unavailable(data_dir, &error))?;
    folder.try_lock().map_err(|_| in_use(data_dir))?;
    let file = data_dir.join(FILE);
    let is_there = has_content(&file);
    if (is_there || has_content(&beside(&file, "-wal"))) && !replace {
        let dir = data_dir.display();
        return Err(StoreError::Failed(format!("there is a database in {dir}; --force puts the backup in its place")));
    }
    let partial = AtomicFile::in_folder(data_dir).map_err(|error| unavailable(data_dir, &error))?;
    let source = Connection::open_with_flags(backup, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let named = |error: StoreError| StoreError::Failed(format!("{}: {error}", backup.display()));
    copy(&source, partial.path(), &mut |done, of| match progress(done, of) {
        true => Ok(()),
        false => Err(stopped()),
    })
    .map_err(named)?;
    let copied = check(partial.path(), &mut |bytes| match progress(bytes, bytes) {
        true => Ok(()),
        false => Err(stopped()),
    })
    .map_err(named)?;
    deployment::agree(copied.deployment, deployment).map_err(named)?;
    end_sessions(partial.path())?;
    // SQLite ignores the log and the journal of an empty file.
    if is_there {
        settle(&file, data_dir)?;
    }
    remove_beside(&file)?;
    sync_folder(data_dir).map_err(|error| unavailable(data_dir, &error))?;
    partial.publish(&file, true).map_err(|error| unavailable(&file, &error))?;
    Ok(copied)
}

/// Deletes all sessions. Otherwise sessions that were ended since the backup, perhaps because they were stolen, would be
/// valid again.
fn end_sessions(file: &Path) -> Result<()> {
    let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // The file is synced before it gets its name.
    conn.pragma_update(None, "journal_mode", "OFF")?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    // Schema version 1 has no sessions.
    let there: bool =
        conn.query_row("SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'sessions'", [], |row| row.get(0))?;
    if there {
        conn.execute("DELETE FROM sessions", [])?;
    }
    Ok(())
}

/// Turns the database that is about to be replaced into a single file, synced to the disk. Fails if another process has
/// it open, even one of another program, because SQLite then refuses to leave WAL mode.
fn settle(file: &Path, data_dir: &Path) -> Result<()> {
    let settled = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|conn| conn.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get::<_, String>(0)));
    let error = match settled {
        Ok(mode) if mode == "delete" => return Ok(()),
        Ok(_) => return Err(in_use(data_dir)),
        Err(error) => error,
    };
    match error.sqlite_error_code() {
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

/// An error of the backup's own file, not of the database.
fn failed(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Failed(format!("{}: {error}", path.display()))
}

fn stopped() -> StoreError {
    StoreError::Failed("the copy was stopped".into())
}

fn exists(file: &Path) -> StoreError {
    StoreError::Failed(format!("{} exists; --force replaces it", file.display()))
}

/// Copies what `source` sees now into an empty file, page by page, so that every id stays what it is.
fn copy(source: &Connection, to: &Path, going_on: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
    // With one transaction, the copy is of one moment, and commits of others do not restart it.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let page: u64 = source.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))?.try_into().unwrap_or(0);
    let copied = {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut to = Connection::open_with_flags(to, flags)?;
        // An unnamed file is discarded after a crash. It is synced before it gets its name.
        to.pragma_update(None, "journal_mode", "OFF")?;
        to.pragma_update(None, "synchronous", "OFF")?;
        steps(&rusqlite::backup::Backup::new(source, &mut to)?, page, going_on)
    };
    source.execute_batch("ROLLBACK")?;
    copied
}

fn steps(
    backup: &rusqlite::backup::Backup<'_, '_>,
    page: u64,
    going_on: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    loop {
        let step = backup.step(STEP)?;
        let now = backup.progress();
        let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * page;
        going_on(bytes(now.pagecount - now.remaining), bytes(now.pagecount))?;
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Unexpected, because the transaction is open.
            _ => return Err(StoreError::Unavailable("the database is locked".into())),
        }
    }
}

/// Checks that a copy is intact and that this program can open it. Calls `going_on` with its size from time to time,
/// and stops if that fails.
fn check(file: &Path, going_on: &mut dyn FnMut(u64) -> Result<()>) -> Result<Copied> {
    atomic_file::without_log(file).map_err(|error| unavailable(file, &error))?;
    let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let bytes = file.metadata().map_err(|error| unavailable(file, &error))?.len();
    let (conn, verdict) = integrity(conn, &mut || going_on(bytes))?;
    if verdict != "ok" {
        return Err(StoreError::Failed(format!("the database is damaged: {verdict}")));
    }
    migrations::refuse_newer(&conn)?;
    if !migrations::has_any(&conn)? {
        return Err(migrations::foreign());
    }
    let deployment = stored_deployment(&conn)?;
    let deployment = deployment.ok_or_else(|| StoreError::Failed("the database was never completed".into()))?;
    Ok(Copied { deployment, bytes })
}

/// Runs SQLite's own check, which may take as long as the copy. Interrupts the check if `going_on` fails.
fn integrity(conn: Connection, going_on: &mut dyn FnMut() -> Result<()>) -> Result<(Connection, String)> {
    let interrupt = conn.get_interrupt_handle();
    let (done, ended) = mpsc::channel();
    let checking = thread::spawn(move || {
        let verdict = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
        // The receiver waits for it.
        let _ = done.send((conn, verdict));
    });
    let (conn, verdict) = loop {
        match ended.recv_timeout(POLL) {
            Ok(ended) => break ended,
            Err(RecvTimeoutError::Timeout) => going_on().inspect_err(|_| {
                interrupt.interrupt();
                // Waits until the connection is closed, because the caller removes the file next.
                let _ = ended.recv();
            })?,
            Err(RecvTimeoutError::Disconnected) => return Err(StoreError::Failed("the check broke off".into())),
        }
    };
    let _ = checking.join();
    Ok((conn, verdict?))
}
