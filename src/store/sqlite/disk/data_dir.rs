//! The data directory: its files, and files that must be durable.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::atomic_file::{self, sync_folder};
use crate::store::{Result, StoreError};

pub const FILE: &str = "petstore.db";

/// Maximum length of a database's path in bytes. SQLite's is 512 and includes the endings of its other files.
const LONGEST_PATH: usize = 504;

/// Lock file. Its lock is held while the database is opened or replaced. Its content: see `generation.rs`.
pub const LOCK: &str = "petstore.lock";

/// Marks a failed sync. Services on the database end, and none starts while any process has it open. The disk may have lost
/// pages that SQLite's index of the log counts as written back. SQLite rebuilds the index once no process has it open.
pub const SYNC_FAILED: &str = "petstore.sync-failed";

/// The API key that `petstore quickstart` keeps.
pub const KEY_FILE: &str = "quickstart.key";

/// Returns the file that a command may create or replace under `path`, with links resolved. Fails if it belongs to the
/// store in `data_dir`, even under another name, or to the store in its own folder.
pub fn outside_stores(path: &Path, data_dir: &Path) -> io::Result<PathBuf> {
    let target = resolved(path)?;
    let folder = atomic_file::folder_of(&target);
    let is_store = folder.join(LOCK).exists() || fs::canonicalize(data_dir).is_ok_and(|data_dir| data_dir == folder);
    let mut belongs = is_store && target.file_name().is_some_and(is_own_name);
    // Links to the store's own files from elsewhere.
    if let (Ok(target), Ok(own)) = (identity(&target), fs::read_dir(data_dir)) {
        let mut own = own.flatten().filter(|file| is_own_name(&file.file_name()));
        belongs |= own.any(|file| identity(&file.path()).is_ok_and(|own| own == target));
    }
    match belongs {
        true => Err(io::Error::other("a file of a petstore database, which is never replaced")),
        false => Ok(target),
    }
}

/// Returns whether a file with this name in a data directory belongs to the store.
fn is_own_name(name: &OsStr) -> bool {
    name == KEY_FILE || name.as_bytes().starts_with(b"petstore.") || atomic_file::is_unfinished(name)
}

/// Returns an absolute path without links, even if its file does not exist.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(path), fs::read_link(path)) {
        (Err(error), Ok(target)) if error.kind() == ErrorKind::NotFound => {
            resolved(&atomic_file::folder_of(path).join(target))
        }
        (Err(error), Err(_)) if error.kind() == ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            Ok(fs::canonicalize(atomic_file::folder_of(path))?.join(name))
        }
        (found, _) => found,
    }
}

/// Identifies a file by its device and inode.
pub fn identity(file: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(file)?;
    Ok((found.dev(), found.ino()))
}

/// Returns whether a data directory has a database, perhaps an empty one, or the log of one that is gone.
pub fn has_database(data_dir: &Path) -> bool {
    let file = data_dir.join(FILE);
    file.exists() || has_content(&beside(&file, "-wal"))
}

/// Fails unless this process may open the database of a data directory, or create it. On a read-only disk, it may read one.
pub fn check_access(data_dir: &Path) -> Result<()> {
    let file = data_dir.join(FILE);
    let folder = data_dir.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(unavailable(folder)(ErrorKind::NotADirectory.into()));
    }
    let mut needed = vec![(folder, Access::WRITE_OK | Access::EXEC_OK)];
    if file.exists() {
        needed.push((&file, Access::READ_OK | Access::WRITE_OK));
    }
    needed.into_iter().try_for_each(|(path, access)| match accessat(CWD, path, access, AtFlags::EACCESS) {
        Err(Errno::ROFS) if file.exists() => Ok(()),
        checked => checked.map_err(|error| unavailable(path)(error.into())),
    })
}

/// Returns whether the disk lacks the 64 KiB for the first pages of SQLite's log and index.
pub fn is_disk_full(data_dir: &Path) -> bool {
    let written = tempfile::tempfile_in(data_dir).and_then(|mut file| file.write_all(&[0; 64 << 10]));
    written.is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Returns whether another process has the database open.
pub fn is_in_use(data_dir: &Path) -> bool {
    File::open(data_dir).is_ok_and(|folder| matches!(folder.try_lock(), Err(TryLockError::WouldBlock)))
}

pub fn missing(dir: &Path) -> StoreError {
    let dir = dir.display();
    StoreError::Failed(format!("there is no database in {dir}; `petstore serve` or `petstore quickstart` creates one"))
}

pub fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.len() > 0)
}

/// Fails if the path exists and is not a regular file. Opening a pipe would block until its other end is opened.
pub fn refuse_special_file(file: &Path) -> Result<()> {
    match fs::metadata(file) {
        Ok(there) if !there.is_file() => Err(StoreError::Failed(format!("{} is not a regular file", file.display()))),
        _ => Ok(()),
    }
}

/// Fails if the database is a link. SQLite keeps the log and its index beside the target, and our locks are here.
pub fn refuse_link(file: &Path) -> Result<()> {
    if !file.is_symlink() {
        return Ok(());
    }
    let why = "is a link: give the folder of its target with --data-dir, or move the database here";
    Err(StoreError::Failed(format!("{} {why}", file.display())))
}

/// Opens or creates a file that only its owner can access. Its folder may be open to others.
pub fn own_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).read(true).write(true).truncate(false).mode(0o600).open(path)
}

/// Creates the data directory if it is missing. Only its owner can access it, because it holds password hashes and
/// messages.
pub fn create_data_dir(dir: &Path) -> Result<()> {
    let length = absolute(dir.join(FILE)).map_err(unavailable(dir))?.as_os_str().len();
    if length > LONGEST_PATH {
        return Err(StoreError::Failed(format!(
            "the path of the database is too long for SQLite: it has {length} bytes, {LONGEST_PATH} are allowed"
        )));
    }
    make_folder(dir).map_err(unavailable(dir))
}

/// Creates a folder and its parents, and syncs each of their names.
pub fn make_folder(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> =
        dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let parents = missing.into_iter().filter_map(Path::parent);
    parents.map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).try_for_each(sync_folder)
}

/// Returns the path of a file that SQLite keeps beside the database.
pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Returns the conversion of an error of `path`.
pub fn unavailable(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Unavailable(format!("{}: {error}", path.display()))
}
