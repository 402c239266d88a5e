//! The folder of a database: its files, and files that must be durable.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::atomic_file::{self, folder_of, sync_folder};
use crate::{Error, Result};

/// Maximum length of a database's path in bytes. SQLite's is 512 and includes the endings of its other files.
const LONGEST_PATH: usize = 504;

/// The folder of one database, and the names of its files. The database `shop` has `shop.db`, SQLite's `shop.db-wal` and
/// `shop.db-shm`, `shop.lock` and, after a failed sync, `shop.sync-failed`.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
    name: &'static str,
    own_files: &'static [&'static str],
    has_traces: fn(&Path) -> bool,
}

impl Folder {
    /// Names a database, the only one in its folder. Some errors show `name` as that of the program. Reads and creates nothing.
    pub fn new(dir: impl Into<PathBuf>, name: &'static str) -> Self {
        Self { dir: dir.into(), name, own_files: &[], has_traces: |_| false }
    }

    /// Names files of the application that belong to the database, so that [`Self::outside`] protects them, too.
    #[must_use]
    pub fn with_own_files(self, own_files: &'static [&'static str]) -> Self {
        Self { own_files, ..self }
    }

    /// Sets how the application tells that a folder without a database has had one, such as by backups in it. Opening
    /// then fails with [`Error::Apart`] instead of creating an empty database. By default, only files of this crate tell.
    #[must_use]
    pub fn with_traces(self, has_traces: fn(&Path) -> bool) -> Self {
        Self { has_traces, ..self }
    }

    /// Returns the path of the folder, as it was given.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the database file.
    pub fn database(&self) -> PathBuf {
        self.file("db")
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the path of the lock file. Its lock is held while the database is opened or replaced. Its content: see
    /// `generation.rs`.
    pub(crate) fn lock(&self) -> PathBuf {
        self.file("lock")
    }

    /// Returns the path of the mark of a failed sync. Services on the database end, and none starts while any process has it
    /// open. The disk may have lost pages that SQLite's index of the log counts as written back. SQLite rebuilds the index
    /// once no process has it open.
    pub(crate) fn sync_failed(&self) -> PathBuf {
        self.file("sync-failed")
    }

    /// Fails if a sync of any process has failed.
    pub(crate) fn check_syncs(&self) -> Result<()> {
        let mark = self.sync_failed();
        let has_failed = mark.try_exists().map_err(unavailable(&mark))?;
        if has_failed { Err(Error::Unavailable("a sync of the database has failed".into())) } else { Ok(()) }
    }

    /// Returns the path of the write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        beside(&self.database(), "-wal")
    }

    pub(crate) fn has_traces(&self) -> bool {
        (self.has_traces)(&self.dir) || self.sync_failed().exists()
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.name))
    }

    /// Returns the file that a command may create or replace under `path`, with links resolved.
    ///
    /// # Errors
    ///
    /// Fails if the file belongs to this database, even under another name, or to a database of the same name in its own
    /// folder.
    pub fn outside(&self, path: &Path) -> io::Result<PathBuf> {
        let target = resolved(path)?;
        let folder = folder_of(&target);
        let is_own = Self { dir: folder.to_owned(), ..self.clone() }.lock().exists()
            || fs::canonicalize(&self.dir).is_ok_and(|dir| dir == folder);
        let mut belongs = is_own && target.file_name().is_some_and(|name| self.is_own_name(name));
        // Links to the database's own files from elsewhere.
        if let (Ok(target), Ok(own)) = (identity(&target), fs::read_dir(&self.dir)) {
            let mut own = own.flatten().filter(|file| self.is_own_name(&file.file_name()));
            belongs |= own.any(|file| identity(&file.path()).is_ok_and(|own| own == target));
        }
        let refused = || io::Error::other(format!("a file of a {} database, which is never replaced", self.name));
        if belongs { Err(refused()) } else { Ok(target) }
    }

    /// Returns whether a file with this name in the folder belongs to the database.
    fn is_own_name(&self, name: &OsStr) -> bool {
        self.own_files.iter().any(|own| name == *own)
            || name.as_bytes().strip_prefix(self.name.as_bytes()).is_some_and(|rest| rest.starts_with(b"."))
            || atomic_file::is_unfinished(name, self.name)
    }

    /// Returns whether the folder has a database, perhaps an empty one, or the log of one that is gone.
    pub fn has_database(&self) -> bool {
        self.database().exists() || has_content(&self.log())
    }

    /// Checks that this process may open the database, or create it. On a read-only disk, that it may read one.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] names the file or folder without access.
    pub fn check_access(&self) -> Result<()> {
        let files = ["", "-wal", "-shm"].map(|suffix| beside(&self.database(), suffix));
        self.check_length()?;
        // A link without its target is no folder, and the next one would not be created there.
        let folder = self.dir.ancestors().find(|dir| dir.symlink_metadata().is_ok()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(unavailable(folder)(ErrorKind::NotADirectory.into()));
        }
        let needed = files.iter().map(|file| (&**file, Access::READ_OK | Access::WRITE_OK));
        let mut needed = [(folder, Access::WRITE_OK | Access::EXEC_OK)].into_iter().chain(needed);
        needed.try_for_each(|(path, access)| match accessat(CWD, path, access, AtFlags::EACCESS) {
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::ROFS) if files[0].exists() => Ok(()),
            checked => checked.map_err(|error| unavailable(path)(error.into())),
        })
    }

    /// Returns whether the disk lacks the 64 KiB for the first pages of SQLite's log and index.
    pub fn is_disk_full(&self) -> bool {
        let written = tempfile::tempfile_in(&self.dir).and_then(|mut file| file.write_all(&[0; 64 << 10]));
        written.is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
    }

    /// Returns whether a process has the database open, opens or replaces it.
    pub fn is_in_use(&self) -> bool {
        let is_taken = |lock: &FolderLock| matches!(lock.0.try_lock(), Err(TryLockError::WouldBlock));
        // A process that opens the database now waits, and does not find the folder locked. Opened for writing, a pipe does not
        // block.
        let opening = OpenOptions::new().read(true).write(true).open(self.lock()).map(FolderLock);
        opening.as_ref().is_ok_and(is_taken) || File::open(&self.dir).map(FolderLock).as_ref().is_ok_and(is_taken)
    }

    /// Creates the folder if it is missing. Only its owner can access it, because it may hold secrets.
    pub(crate) fn create(&self) -> Result<()> {
        self.check_length()?;
        make_folder(&self.dir).map_err(unavailable(&self.dir))
    }

    fn check_length(&self) -> Result<()> {
        let length = absolute(self.database()).map_err(unavailable(&self.dir))?.as_os_str().len();
        let why = format!(
            "the path of the database is too long for SQLite: it has {length} bytes, {LONGEST_PATH} are allowed"
        );
        if length > LONGEST_PATH { Err(Error::Failed(why)) } else { Ok(()) }
    }
}

/// An open folder or file. Its lock ends with it, even while a child that another thread has forked shares the lock, because it
/// has not yet executed its program.
#[derive(Debug)]
pub struct FolderLock(pub(crate) File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Returns an absolute path without links, even if its file does not exist.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(path), fs::read_link(path)) {
        (Err(error), Ok(target)) if error.kind() == ErrorKind::NotFound => resolved(&folder_of(path).join(target)),
        (Err(error), Err(_)) if error.kind() == ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            Ok(fs::canonicalize(folder_of(path))?.join(name))
        }
        (found, _) => found,
    }
}

/// Device and inode of a file.
pub type Identity = (u64, u64);

pub fn identity(file: &Path) -> io::Result<Identity> {
    fs::metadata(file).map(|found| identity_of(&found))
}

pub fn identity_of(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

/// Returns `None` if there is no such file.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

pub fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.len() > 0)
}

/// Fails if the path exists and is not a regular file. Opening a pipe would block until its other end is opened.
pub fn refuse_special_file(file: &Path) -> Result<()> {
    match fs::metadata(file) {
        Ok(there) if !there.is_file() => Err(Error::Failed(format!("{} is not a regular file", file.display()))),
        _ => Ok(()),
    }
}

/// Fails if the database is a link. SQLite keeps the log and its index beside the target, and our locks are here.
pub fn refuse_link(file: &Path) -> Result<()> {
    if file.is_symlink() { Err(Error::Link(file.to_owned())) } else { Ok(()) }
}

/// Opens a file, or creates it for the owner of its folder only. The folder may be open to others.
///
/// # Errors
///
/// Those of the file system.
pub fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.create(true).open(path),
        made => made.inspect(|file| give_to_owner(file, folder_of(path))),
    }
}

/// Gives a file that root has just made to the owner of its folder, perhaps a service. One that was there may be another's, by a
/// link.
pub fn give_to_owner(file: &File, folder: &Path) {
    if let (Ok(made), Ok(folder)) = (file.metadata(), folder.metadata())
        && made.uid() == 0
        && folder.uid() != 0
    {
        let _ = fchown(file, Some(folder.uid()), Some(folder.gid()));
    }
}

/// Creates a folder and its parents, which only their owner can access, and syncs each of their names.
///
/// # Errors
///
/// Those of the file system.
pub fn make_folder(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> =
        dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    missing.into_iter().map(folder_of).try_for_each(sync_folder)
}

/// Returns the path of a file that SQLite keeps beside the database.
pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Returns the conversion of an error of `path`.
pub fn unavailable(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::Unavailable(format!("{}: {error}", path.display()))
}
