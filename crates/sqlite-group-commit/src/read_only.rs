//! A database on a read-only disk. Reads succeed, and every write is refused.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use crate::connection::connect;
use crate::disk::files::Files;
use crate::disk::folder::{Folder, beside, has_content, own_file};
use crate::disk::wal_index::WalIndex;
use crate::readers::Readers;
use crate::schema::Schema;
use crate::{Error, Options, Result};

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
    folder: Folder,
}

impl ReadOnly {
    /// Determines how the database can be read if no lock file can be created beside it.
    pub fn of(folder: &Folder) -> Result<Self> {
        let file = folder.database();
        let reading = match (has_content(&folder.log()), has_content(&beside(&file, "-shm"))) {
            (false, _) => Reading::File,
            (true, true) => Reading::FileAndLog,
            // Without its log, the database would lack the last acknowledged writes.
            (true, false) => {
                return Err(Error::Unavailable(format!(
                    "{}: has a write-ahead log without its index, which cannot be created on a read-only disk; \
                     start {} once with a writable disk",
                    file.display(),
                    folder.name()
                )));
            }
        };
        Ok(Self { reading, folder: folder.clone() })
    }

    pub fn connect(&self) -> Result<Connection> {
        let file = self.folder.database();
        match self.reading {
            Reading::FileAndLog => connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY),
            Reading::File => {
                let path = percent_encode(file.as_os_str().as_bytes(), PATH);
                let uri = format!("file:{path}?immutable=1");
                connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
            }
        }
    }

    /// Opens the readers. Fails unless the schema is current.
    pub fn open(&self, options: &Options, schema: &impl Schema, in_use: Arc<File>) -> Result<Readers> {
        schema.require_current(&self.connect()?)?;
        let wal_index = match self.reading {
            Reading::FileAndLog => WalIndex::open(&self.folder.database())?,
            Reading::File => WalIndex::unchanging(),
        };
        Readers::open(options, || self.connect(), Arc::new(wal_index), in_use)
    }

    /// Records the files that are read.
    pub fn files(&self) -> Result<Files> {
        match self.reading {
            Reading::File => Files::of(&self.folder, &[""]),
            Reading::FileAndLog => Files::of(&self.folder, &["", "-wal", "-shm"]),
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
            if own_file(&self.folder.lock()).is_ok() {
                return "the disk accepts writes again".into();
            }
            if self.reading == Reading::File && has_content(&self.folder.log()) {
                return "another process writes to the database, which was opened as immutable".into();
            }
        }
    }
}
