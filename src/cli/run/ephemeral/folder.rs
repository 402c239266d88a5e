//! The temporary folder of an ephemeral store, and those that killed processes have left.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

const PREFIX: &str = "petstore-ephemeral-";

/// File that marks a folder as one of ours. Created after the folder is locked, so a marked folder without a lock is
/// abandoned.
const MARKER: &str = "petstore-ephemeral";

/// Folder of the database, within ours.
const DATA: &str = "data";

/// A folder that only its owner can access. Locked until it is removed on drop.
pub struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    pub fn create(temporary: &Path) -> io::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(temporary)?;
        let lock = File::open(folder.path())?;
        // Waits, because `remove_abandoned` of another process takes the lock for a moment.
        lock.lock()?;
        File::create_new(folder.path().join(MARKER))?;
        // If the store created it, it would sync its name.
        DirBuilder::new().mode(0o700).create(folder.path().join(DATA))?;
        Ok(Self { path: folder.keep(), lock })
    }

    pub fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path, &self.lock) {
            tracing::warn!(%error, folder = %self.path.display(), "cannot remove the temporary folder");
        }
    }
}

/// Removes the folders of killed processes of this user.
pub fn remove_abandoned(temporary: &Path) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
        let folder = entry.path();
        if let Some(lock) = lock_abandoned(&folder) {
            // Not worth a warning in a test run. The next one tries again.
            let _ = remove(&folder, &lock);
        }
    }
}

/// Locks an abandoned folder. `None` if it is a link, has no marker, or belongs to another user or a running process.
fn lock_abandoned(folder: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::open(folder, flags, Mode::empty()).ok()?);
    let is_own = lock.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    if !is_own || lock.try_lock().is_err() {
        return None;
    }
    let marker = rustix::fs::statat(&lock, MARKER, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(marker.st_mode) == FileType::RegularFile).then_some(lock)
}

/// Removes the marker last, so that the rest of an interrupted removal is removed next time. Follows no links: even if another
/// user replaces the folder, its content is reached through `lock`, which is the open folder.
fn remove(folder: &Path, lock: &File) -> io::Result<()> {
    let inside = PathBuf::from(format!("/proc/self/fd/{}", lock.as_raw_fd()));
    match fs::remove_dir_all(inside.join(DATA)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::remove_file(inside.join(MARKER))?,
    }
    fs::remove_dir(folder)
}
