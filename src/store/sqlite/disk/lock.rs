//! The locks of the data directory. Under them, its files are checked.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::data_dir::{
    FILE, LOCK, SYNC_FAILED, beside, has_content, identity, missing, own_file, refuse_link, refuse_special_file,
    unavailable,
};
use super::files::Files;
use super::{atomic_file, generation};
use crate::store::{Result, StoreError};

/// Number of repeated checks of files that other processes use, and the time between them.
const CHECKS: u32 = 50;
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

/// The locks of a process that opens the database.
pub struct Locks {
    /// While it is held, no other process opens or replaces the database.
    pub opening: File,
    /// Keeps other processes from replacing the database.
    pub in_use: File,
    /// True if no other process had the database open.
    pub is_alone: bool,
    /// The files that were checked.
    pub checked: Files,
}

/// Waits until this process may open the database, and removes unfinished files of killed processes.
///
/// `None` if the disk is read-only.
pub fn lock(data_dir: &Path) -> Result<Option<Locks>> {
    let file = data_dir.join(FILE);
    refuse_link(&file)?;
    refuse_special_file(&file)?;
    refuse_special_file(&data_dir.join(LOCK))?;
    let opening = match lock_file(data_dir) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem && file.exists() => return Ok(None),
        locked => locked.map_err(unavailable(data_dir))?,
    };
    let in_use = File::open(data_dir).map_err(unavailable(data_dir))?;
    let is_alone = match in_use.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(unavailable(data_dir)(error)),
    };
    let sync_failed = data_dir.join(SYNC_FAILED);
    if sync_failed.try_exists().map_err(unavailable(&sync_failed))? {
        if !is_alone {
            let why = "a sync has failed, and other processes still use the database: they must end first";
            return Err(StoreError::Unavailable(format!("{}: {why}", data_dir.display())));
        }
        fs::remove_file(&sync_failed).map_err(unavailable(&sync_failed))?;
    }
    in_use.lock_shared().map_err(unavailable(data_dir))?;
    atomic_file::sweep(data_dir).map_err(unavailable(data_dir))?;
    let checked = Files::with_content(&file)?;
    let is_locked = opening.metadata().map_err(unavailable(data_dir))?;
    if identity(&data_dir.join(LOCK)).ok() != Some((is_locked.dev(), is_locked.ino())) {
        return Err(StoreError::Unavailable(format!("{} was replaced while it was opened", data_dir.display())));
    }
    check_files(data_dir, is_alone)?;
    // SQLite would make another index, in which neither process sees the locks and commits of the other.
    let index = beside(&file, "-shm");
    if !is_alone && has_content(&file) && !index.exists() {
        let why = "was removed while other processes use the database: they must end first";
        return Err(StoreError::Unavailable(format!("{} {why}", index.display())));
    }
    // Otherwise, a running process has allowed or recorded its log.
    if is_alone {
        generation::allow_new_log(&opening, data_dir)?;
    }
    Ok(Some(Locks { opening, in_use, is_alone, checked }))
}

/// Fails unless the files of a data directory belong together. Another process may be changing them just now.
fn check_files(data_dir: &Path, is_alone: bool) -> Result<()> {
    let mut checked = generation::check(data_dir);
    for _ in 0..CHECKS {
        if checked.is_ok() || is_alone {
            break;
        }
        thread::sleep(BETWEEN_CHECKS);
        checked = generation::check(data_dir);
    }
    checked
}

/// Waits for the lock under which a database is opened or replaced.
pub fn lock_file(data_dir: &Path) -> io::Result<File> {
    let lock = own_file(&data_dir.join(LOCK))?;
    lock.lock()?;
    Ok(lock)
}

/// Fails if there is no database.
pub fn require_database(dir: &Path) -> Result<()> {
    match fs::metadata(dir.join(FILE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => generation::check(dir).and_then(|()| Err(missing(dir))),
        Err(error) => Err(unavailable(dir)(error)),
    }
}
