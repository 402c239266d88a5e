//! A database on a read-only disk. Reads succeed, and every write is refused.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use super::connection::connect;
use super::disk::data_dir::{beside, has_content, own_file};
use super::disk::files::Files;
use super::disk::wal_index::WalIndex;
use super::migrations;
use super::readers::Readers;
use crate::store::{Result, StoreError};

/// Interval at which the disk is checked for accepting writes again.
const INTERVAL: Duration = Duration::from_secs(1);

/// Characters to escape in the path of a URI.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// The way to read a database if no file can be created beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The database is a single file, and nobody writes.
    File,
    /// The database has a write-ahead log and its index, left by a crash or in use by a process that can write.
    FileAndLog,
}

#[derive(Debug)]
pub struct ReadOnly {
    reading: Reading,
    lock: PathBuf,
    log: PathBuf,
}

impl ReadOnly {
    /// Determines how `file` can be read if `lock` cannot be created beside it.
    pub fn of(file: &Path, lock: &Path) -> Result<Self> {
        let log = beside(file, "-wal");
        let reading = match (has_content(&log), has_content(&beside(file, "-shm"))) {
            (false, _) => Reading::File,
            (true, true) => Reading::FileAndLog,
            // Without its log, the database would lack the last acknowledged writes.
            (true, false) => {
                let why = "has a write-ahead log without its index, which cannot be created on a read-only disk; \
                           start petstore once with a writable disk";
                return Err(StoreError::Unavailable(format!("{}: {why}", file.display())));
            }
        };
        Ok(Self { reading, lock: lock.to_owned(), log })
    }

    pub fn connect(&self, file: &Path) -> Result<Connection> {
        match self.reading {
            Reading::FileAndLog => connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY),
            Reading::File => {
                let path = percent_encode(file.as_os_str().as_bytes(), PATH);
                let uri = format!("file:{path}?immutable=1");
                connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
            }
        }
    }

    /// Opens the readers. Fails unless the schema is current.
    pub fn open(&self, file: &Path, readers: usize) -> Result<Readers> {
        migrations::require_current(&self.connect(file)?)?;
        let wal_index = match self.reading {
            Reading::FileAndLog => WalIndex::open(file)?,
            Reading::File => WalIndex::unchanging(),
        };
        Readers::open(readers, || self.connect(file), Arc::new(wal_index))
    }

    /// Records the files that are read.
    pub fn files(&self, file: &Path) -> Result<Files> {
        match self.reading {
            Reading::File => Files::of(file, &[""]),
            Reading::FileAndLog => Files::of(file, &["", "-wal", "-shm"]),
        }
    }

    /// Waits until this process or another may write to the database, or until one of its files is gone. Returns
    /// why the process must end.
    pub async fn ended(&self, files: &Files) -> String {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Err(gone) = files.check_names() {
                return gone.to_string();
            }
            if own_file(&self.lock).is_ok() {
                return "the disk accepts writes again".into();
            }
            if self.reading == Reading::File && has_content(&self.log) {
                return "another process writes to the database, which was opened as immutable".into();
            }
        }
    }
}
