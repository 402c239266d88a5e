//! Detects that the files of an open database were removed, replaced or moved, or that a sync of them has failed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::folder::{Folder, Identity, beside, has_content, identity, identity_of, own_file, unavailable};
use crate::{Error, Result};

/// The names of the files, and the identity that each had when the database was opened.
///
/// If a file is removed or replaced, SQLite continues with the file it has open. Commits to that file are lost when the
/// process ends. If the index (`-shm`) is replaced, processes do not see each other's locks.
#[derive(Debug)]
pub struct Files {
    pub folder: Folder,
    opened: Vec<(PathBuf, Identity)>,
    /// The folder when the names in it were last checked. `None` if they must be checked again.
    checked: Mutex<Option<FolderState>>,
}

/// Identity of the folder, and the time when a name in it was last added, removed or replaced, in seconds and nanoseconds.
type FolderState = (Identity, (i64, i64));

/// Age from which the time of a folder's last change identifies that change. Some file systems count it in steps of 2 s.
const DISTINCT: Duration = Duration::from_secs(3);

impl Files {
    /// Records the files with these suffixes, and the lock file. Fails if one is missing.
    pub fn of(folder: &Folder, suffixes: &[&str]) -> Result<Self> {
        let (database, lock) = (folder.database(), Some(folder.lock()).filter(|lock| lock.exists()));
        let opened = suffixes.iter().map(|suffix| beside(&database, suffix)).chain(lock).map(|path| {
            let identity = identity(&path).map_err(unavailable(&path))?;
            Ok((path, identity))
        });
        Ok(Self { opened: opened.collect::<Result<_>>()?, folder: folder.clone(), checked: Mutex::default() })
    }

    /// Records the database and its log, if they have content, and the lock file.
    pub fn with_content(folder: &Folder) -> Result<Self> {
        let database = folder.database();
        let there = ["", "-wal"].into_iter().filter(|suffix| has_content(&beside(&database, suffix)));
        Self::of(folder, &there.collect::<Vec<_>>())
    }

    /// Fails if the files can no longer be relied on. Takes five `stat` calls, about 10 µs.
    pub fn check(&self) -> Result<()> {
        self.folder.check_syncs().and_then(|()| self.check_names())
    }

    /// Checks the files like [`Self::check`] if a name in their folder has changed since the last call, or less than
    /// [`DISTINCT`] before it. Otherwise takes one `stat` call.
    pub fn check_changes(&self) -> Result<()> {
        let mut checked = self.checked.lock();
        let found = fs::metadata(self.folder.dir()).map_err(unavailable(self.folder.dir()))?;
        let folder = (identity_of(&found), (found.mtime(), found.mtime_nsec()));
        if *checked == Some(folder) {
            return Ok(());
        }
        // A later change may have the same time.
        let age = found.modified().ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        *checked = (age > Some(DISTINCT)).then_some(folder);
        self.check().inspect_err(|_| *checked = None)
    }

    /// Makes [`Folder::check_syncs`] fail in all processes, and keeps new ones from starting before these have ended.
    pub fn mark_failed_sync(&self) {
        let mark = self.folder.sync_failed();
        if let Err(error) = own_file(&mark)
            && !mark.exists()
        {
            let file = mark.display();
            tracing::error!(%error, %file, "cannot mark the failed sync, stop all processes on the database");
        }
    }

    /// Fails unless every name still leads to its file. Does not open the files, because closing one would drop this
    /// process's locks on it.
    pub fn check_names(&self) -> Result<()> {
        for (path, opened) in &self.opened {
            let why = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => "another file has taken its name".to_owned(),
                Err(error) => error.to_string(),
            };
            let what = "was removed, replaced or moved while the database was open";
            return Err(Error::Unavailable(format!("{} {what}: {why}", path.display())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn changed_name_is_noticed_in_a_folder_at_rest() {
        let folder = tempfile::tempdir().unwrap();
        let named = Folder::new(folder.path(), "shop");
        let database = named.database();
        File::create(&database).unwrap();
        let files = Files::of(&named, &[""]).unwrap();
        let long_ago = SystemTime::now() - 10 * DISTINCT;
        let rests = || File::open(folder.path()).unwrap().set_modified(long_ago).unwrap();

        rests();
        files.check_changes().unwrap();
        assert!(files.checked.lock().is_some(), "known from now on");
        File::create(folder.path().join("other")).unwrap();
        files.check_changes().unwrap();
        assert!(files.checked.lock().is_none(), "changed too recently");

        rests();
        files.check_changes().unwrap();
        files.mark_failed_sync();
        assert!(files.check_changes().unwrap_err().to_string().contains("sync"));
        fs::remove_file(named.sync_failed()).unwrap();

        rests();
        files.check_changes().unwrap();
        File::create(folder.path().join("new")).unwrap();
        fs::rename(folder.path().join("new"), &database).unwrap();
        assert!(files.check_changes().unwrap_err().to_string().contains("another file has taken its name"));
    }
}
