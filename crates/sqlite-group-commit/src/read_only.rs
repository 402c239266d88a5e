//! A database on a read-only disk. Reads succeed, and every write is refused.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use crate::connection::connect;
use crate::disk::files::Files;
use crate::disk::folder::{Folder, FolderLock, beside, has_content, own_file};
use crate::disk::wal_index::WalIndex;
use crate::readers::Readers;
use crate::schema::Schema;
use crate::{Error, Options, Result};

/// Interval at which the disk is checked for accepting writes again.
const INTERVAL: Duration = Duration::from_secs(1);

/// Characters to escape in the path of a URI.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

#[derive(Debug)]
pub struct ReadOnly {
    folder: Folder,
    /// True if the database has a write-ahead log and its index, left by a crash or in use by a process that can write.
    /// Otherwise it is a single file, and nobody writes.
    has_log: bool,
}

impl ReadOnly {
    /// Determines how the database can be read if no lock file can be created beside it.
    pub fn of(folder: &Folder) -> Result<Self> {
        let (file, has_log) = (folder.database(), has_content(&folder.log()));
        // Without its log, the database would lack the last acknowledged writes.
        if has_log && !has_content(&beside(&file, "-shm")) {
            return Err(Error::Unavailable(format!(
                "{}: has a write-ahead log without its index, which cannot be created on a read-only disk; start {} once \
                 with a writable disk",
                file.display(),
                folder.name()
            )));
        }
        Ok(Self { folder: folder.clone(), has_log })
    }

    pub fn connect(&self) -> Result<Connection> {
        let file = self.folder.database();
        if self.has_log {
            return connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        }
        let uri = format!("file:{}?immutable=1", percent_encode(file.as_os_str().as_bytes(), PATH));
        connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
    }

    /// Opens the readers. Fails unless the schema is current.
    pub fn open(&self, options: &Options, schema: &impl Schema, in_use: Arc<FolderLock>) -> Result<Readers> {
        schema.require_current(&self.connect()?)?;
        let wal_index = if self.has_log { WalIndex::open(&self.folder.database())? } else { WalIndex::unchanging() };
        // Kept transactions would keep a process that can write from beginning its log again.
        Readers::open(options, !self.has_log, || self.connect(), Arc::new(wal_index), in_use)
    }

    /// Records the files that are read.
    pub fn files(&self) -> Result<Files> {
        Files::of(&self.folder, if self.has_log { &["", "-wal", "-shm"] } else { &[""] })
    }

    /// Waits until this process or another may write to the database, or until one of its files is gone. Returns
    /// why the process must end.
    pub async fn ended(&self, files: &Files) -> String {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Err(gone) = files.check_names() {
                return gone.to_string();
            }
            if own_file(&self.folder.lock()).is_ok() {
                return "the disk accepts writes again".into();
            }
            if !self.has_log && has_content(&self.folder.log()) {
                return "another process writes to the database, which was opened as immutable".into();
            }
        }
    }
}
