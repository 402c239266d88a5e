//! Detects that the files of an open database were removed, replaced or moved.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::data_dir::{beside, unavailable};
use crate::store::{Result, StoreError};

/// The names of the files, and the identity that each had when the database was opened.
///
/// If a file is removed or replaced, SQLite continues with the file it has open. Commits to that file are lost when the
/// process ends. If the index (`-shm`) is replaced, processes do not see each other's locks.
#[derive(Debug)]
pub struct Files(Vec<(PathBuf, Identity)>);

/// Device and inode.
type Identity = (u64, u64);

impl Files {
    /// Records the files with these suffixes. Fails if one is missing.
    pub fn of(database: &Path, suffixes: &[&str]) -> Result<Self> {
        let files = suffixes.iter().map(|suffix| {
            let path = beside(database, suffix);
            let identity = identity(&path).map_err(unavailable(&path))?;
            Ok((path, identity))
        });
        Ok(Self(files.collect::<Result<_>>()?))
    }

    /// Fails unless every name still leads to its file. Takes three `stat` calls, about 5 µs. Does not open the files,
    /// because closing one would drop this process's locks on it.
    pub fn check(&self) -> Result<()> {
        for (path, opened) in &self.0 {
            let why = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => "another file has taken its name".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(StoreError::Unavailable(format!(
                "{} was removed, replaced or moved while the database was open: {why}",
                path.display()
            )));
        }
        Ok(())
    }
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}
