//! Files that appear under their name only once they are complete and durable.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

/// Suffix of unfinished files.
const SUFFIX: &str = ".partial";

/// An unfinished file, readable by its owner only. Removed on drop. If the process is killed, the file is removed before the
/// next unfinished file is created in the folder, or when the database in the folder is next opened.
#[derive(Debug)]
pub struct AtomicFile(NamedTempFile);

impl AtomicFile {
    /// Creates an unfinished file, and removes those of killed processes. `name` is that of the database, or of the
    /// program.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn in_folder(folder: &Path, name: &str) -> io::Result<Self> {
        sweep(folder, name)?;
        loop {
            let file = tempfile::Builder::new().prefix(&prefix(name)).suffix(SUFFIX).tempfile_in(folder)?;
            // A running process holds the lock of its unfinished files.
            file.as_file().lock()?;
            // Another process may have removed the file before it was locked.
            if file.as_file().metadata()?.nlink() > 0 {
                return Ok(Self(file));
            }
        }
    }

    /// Returns the present path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the file, to write its content.
    pub fn file(&mut self) -> &mut File {
        self.0.as_file_mut()
    }

    /// Renames the file to `name`. The file and its name are durable once this returns; the name only if the file system can
    /// sync a folder, which some network file systems cannot (EINVAL).
    ///
    /// # Errors
    ///
    /// Fails if there is a file of this name and `replace` is false, or if a sync fails.
    pub fn publish(self, name: &Path, replace: bool) -> io::Result<()> {
        self.0.as_file().sync_all()?;
        let published = if replace { self.0.persist(name) } else { self.0.persist_noclobber(name) };
        published.map_err(|error| error.error)?;
        match sync_folder(folder_of(name)) {
            Err(error) if error.kind() != ErrorKind::InvalidInput => {
                let why = format!(
                    "the new file is in place, but its folder cannot be synced, so a power loss may undo it: {error}"
                );
                Err(io::Error::new(error.kind(), why))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the folder that contains a file.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes files created in a folder, or removed from it, durable.
pub fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes unfinished files of killed processes.
pub fn sweep(folder: &Path, name: &str) -> io::Result<()> {
    // Does not follow symbolic links or wait for the other end of a pipe. NFS locks only files that are open for writing.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Skips files that were removed meanwhile or belong to another user, and everything that is not a file.
        if is_unfinished(&entry.file_name(), name)
            && let Ok(file) = rustix::fs::open(entry.path(), flags, Mode::empty()).map(File::from)
            && file.metadata().is_ok_and(|file| file.is_file())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

pub fn is_unfinished(file: &OsStr, name: &str) -> bool {
    file.to_str().is_some_and(|file| file.starts_with(&prefix(name)) && file.ends_with(SUFFIX))
}

fn prefix(name: &str) -> String {
    format!(".{name}-")
}
