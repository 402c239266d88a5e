//! The locks of a database's folder. Under them, its files are checked.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::files::Files;
use super::folder::{
    Folder, FolderLock, Identity, beside, has_content, identity, identity_of, if_there, own_file, refuse_link,
    refuse_special_file, unavailable,
};
use super::{atomic_file, generation};
use crate::{Error, Result};

/// Number of repeated checks of files that other processes use, and the time between them.
const CHECKS: u32 = 50;
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

/// The locks of a process that opens the database.
pub struct Locks {
    /// While it is held, no other process opens or replaces the database.
    pub opening: File,
    /// Keeps other processes from replacing the database.
    pub in_use: Arc<FolderLock>,
    /// True if no other process had the database open.
    pub is_alone: bool,
    /// The files that were checked.
    pub checked: Files,
}

/// Waits until this process may open the database, and removes unfinished files of killed processes.
///
/// `None` if the disk is read-only. `simulated`: see [`claim`].
pub fn lock(folder: &Folder, simulated: bool) -> Result<Option<Locks>> {
    let (dir, file) = (folder.dir(), folder.database());
    refuse_link(&file)?;
    refuse_special_file(&file)?;
    refuse_special_file(&folder.lock())?;
    let opening = match lock_file(folder) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem && file.exists() => return Ok(None),
        locked => locked.map_err(unavailable(dir))?,
    };
    // SQLite opens a file without write access read-only, and every write fails.
    folder.check_access()?;
    let in_use = claim(dir, simulated)?;
    let is_alone = match in_use.0.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(unavailable(dir)(error)),
    };
    let sync_failed = folder.sync_failed();
    if sync_failed.try_exists().map_err(unavailable(&sync_failed))? {
        if !is_alone {
            let why = "a sync has failed, and other processes still use the database: they must end first";
            return Err(Error::Unavailable(format!("{}: {why}", dir.display())));
        }
        fs::remove_file(&sync_failed).map_err(unavailable(&sync_failed))?;
    }
    in_use.0.lock_shared().map_err(unavailable(dir))?;
    atomic_file::sweep(dir, folder.name()).map_err(unavailable(dir))?;
    let checked = Files::with_content(folder)?;
    let is_locked = opening.metadata().map_err(unavailable(dir))?;
    if identity(&folder.lock()).ok() != Some(identity_of(&is_locked)) {
        return Err(Error::Unavailable(format!("{} was replaced while it was opened", dir.display())));
    }
    repeated(is_alone, || generation::check(folder))?;
    // SQLite would make another index. Processes with different indexes do not see each other's locks and commits.
    let index = beside(&file, "-shm");
    if !is_alone && has_content(&file) && !index.exists() {
        let why = "was removed while other processes use the database: they must end first";
        return Err(Error::Unavailable(format!("{} {why}", index.display())));
    }
    // Otherwise, a running process has allowed or recorded its log.
    if is_alone {
        generation::allow_new_log(&opening, folder)?;
    }
    Ok(Some(Locks { opening, in_use, is_alone, checked }))
}

/// Opens a folder for as long as its database is open. Fails if this process has opened it before: closing a file of the
/// database would drop the locks of the first one. A simulation of several processes does not use the files' own locks.
pub fn claim(dir: &Path, simulated: bool) -> Result<Arc<FolderLock>> {
    static OPEN: Mutex<Vec<(Identity, Weak<FolderLock>)>> = Mutex::new(Vec::new());
    let folder = Arc::new(FolderLock(File::open(dir).map_err(unavailable(dir))?));
    let identity = identity_of(&folder.0.metadata().map_err(unavailable(dir))?);
    let mut open = OPEN.lock();
    open.retain(|(_, folder)| folder.strong_count() > 0);
    if !simulated && open.iter().any(|(other, _)| *other == identity) {
        return Err(Error::Unavailable(format!("this process has the database in {} open already", dir.display())));
    }
    open.push((identity, Arc::downgrade(&folder)));
    Ok(folder)
}

/// Checks whether files belong together. Unless this process is alone, repeats that for a second while they do not, because
/// another process may be changing them.
pub fn repeated(is_alone: bool, check: impl Fn() -> Result<()>) -> Result<()> {
    let mut repeats = if is_alone { 0 } else { CHECKS };
    loop {
        match check() {
            Err(Error::Apart { .. }) if repeats > 0 => repeats -= 1,
            checked => return checked,
        }
        thread::sleep(BETWEEN_CHECKS);
    }
}

/// Waits for the lock under which a database is opened or replaced.
pub fn lock_file(folder: &Folder) -> io::Result<File> {
    let lock = own_file(&folder.lock())?;
    lock.lock()?;
    Ok(lock)
}

/// Fails if there is no database.
pub fn require_database(folder: &Folder) -> Result<()> {
    match if_there(fs::metadata(folder.database())).map_err(unavailable(folder.dir()))? {
        Some(_) => Ok(()),
        None => generation::check(folder).and_then(|()| Err(Error::Missing(folder.dir().to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn lock_of_a_folder_ends_while_a_forked_child_shares_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "shop");
        let in_use = claim(dir.path(), false).unwrap();
        in_use.0.lock_shared().unwrap();
        let _of_child = in_use.0.try_clone().unwrap();
        assert!(folder.is_in_use());
        drop(in_use);
        assert!(!folder.is_in_use());
        let _opening = lock_file(&folder).unwrap();
        assert!(folder.is_in_use());
    }

    #[test]
    fn files_that_are_apart_are_checked_again_beside_other_processes() {
        let apart = Error::Apart { what: "a new file".into(), lock: "its lock".into(), name: "petstore" };
        let locked = Error::Unavailable("the database is locked".into());
        for (is_alone, error, expected) in
            [(false, &apart, (true, 3)), (true, &apart, (false, 1)), (false, &locked, (false, 1))]
        {
            let checks = Cell::new(0);
            let checked = repeated(is_alone, || {
                checks.set(checks.get() + 1);
                if checks.get() < 3 { Err(error.clone()) } else { Ok(()) }
            });
            assert_eq!((checked.is_ok(), checks.get()), expected);
        }
    }
}
