//! Notices commits, whoever made them, at the price of one small `pread`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::store::{Result, StoreError};

/// The shared-memory file beside the database (`-shm`), whose head SQLite rewrites at every commit.
///
/// Closing any descriptor of that file drops this process's locks on it (POSIX advisory locks belong to the
/// process), so it must close after every connection: [`super::Sqlite`] keeps it in what its connections' owners hold.
#[derive(Debug)]
pub struct WalIndex(File);

/// The state of the database that a reader would see: two equal stamps mean that nothing was committed between them.
///
/// These are the 48 bytes of the WAL-index header (sqlite.org/walformat.html, section 2.1). SQLite writes them after
/// the WAL's sync and before `COMMIT` returns, so a commit that was answered always shows. A read that catches them
/// half written differs from the stamp before and, by its checksum, from the one after: it counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp([u8; 48]);

impl Stamp {
    /// How many pages lie in the WAL (`mxFrame`).
    pub fn wal_pages(&self) -> u32 {
        u32::from_ne_bytes(self.0[16..20].try_into().expect("four bytes"))
    }
}

impl WalIndex {
    /// Opens the file of a database that a connection has open in WAL mode.
    pub fn open(database: &Path) -> Result<Self> {
        let mut path = database.as_os_str().to_owned();
        path.push("-shm");
        File::open(&path).map(Self).map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))
    }

    pub fn stamp(&self) -> Result<Stamp> {
        let mut head = [0; 48];
        self.0.read_exact_at(&mut head, 0).map_err(|error| StoreError::Unavailable(format!("WAL index: {error}")))?;
        Ok(Stamp(head))
    }
}
