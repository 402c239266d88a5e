//! SQLite: one file, one writer thread, reads on the calling threads.
//!
//! A process opens a database once: closing a second [`Sqlite`] on the same file would drop the first one's locks
//! (see `wal_index.rs`).

mod accounts;
mod atomic_file;
pub mod backup;
mod files;
mod idempotency;
pub(super) mod keys;
mod messages;
pub(super) mod migrations;
mod orders;
mod outbox;
mod pets;
mod read_only;
mod readers;
mod rows;
mod sessions;
mod wal;
mod wal_index;
mod writer;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

pub use atomic_file::{AtomicFile, folder_of};
use files::Files;
pub use outbox::RelayLease;
use read_only::ReadOnly;
use readers::Readers;
use wal_index::WalIndex;
use writer::Writer;
pub use writer::{Atomicity, Batch};

use super::{BackupStatus, Disk, Meters, MigrationStatus, Result, StoreError, Version, deployment};
use crate::domain::Deployment;

/// The file in the data directory.
const FILE: &str = "petstore.db";

/// Lock file. Its lock is held while the database is opened or replaced.
const LOCK: &str = "petstore.lock";

/// The first SQLite without the WAL-reset bug that could corrupt a database (sqlite.org/wal.html, "The WAL-reset bug").
const OLDEST_SQLITE: i32 = 3_051_003;

/// Location and limits of the database.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Opening fails if the database was created for another deployment.
    pub deployment: Option<Deployment>,
    /// Deployment of a new database if `deployment` is `None`. With `None` here, no database is created.
    pub create: Option<Deployment>,
    /// Maximum number of queued writes.
    pub queue: usize,
    /// How long a write waits for a writing process.
    pub busy_timeout: Duration,
    /// Size of the write-ahead log, in pages of 4 KiB, from which no batch begins. The log grows while readers of other
    /// processes keep it from being written back. With the largest batch (512 messages of maximum length, each with a
    /// stored response: 60 MiB), the file stays below 1 GiB.
    pub wal_pages: u32,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            deployment: None,
            create: Some(Deployment::Production),
            queue: 4_096,
            busy_timeout: Duration::from_secs(5),
            wal_pages: 245_000,
        }
    }
}

#[derive(Debug)]
pub struct Sqlite {
    file: PathBuf,
    files: Arc<Files>,
    deployment: Deployment,
    writes: Writes,
    readers: Arc<Readers>,
    backups: BackupStatus,
    /// Lock that keeps other processes from replacing the database.
    _in_use: Option<fs::File>,
}

#[derive(Debug)]
enum Writes {
    Accepted(Writer),
    /// The disk is read-only.
    Refused(ReadOnly),
}

impl Sqlite {
    /// Opens the database of a data directory and migrates its schema. Creates the database if `options` allow it.
    pub fn open(options: &Options) -> Result<Self> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(StoreError::Failed(format!("SQLite {} is too old", rusqlite::version())));
        }
        let file = options.data_dir.join(FILE);
        if options.create.is_some() {
            create_data_dir(&options.data_dir)?;
        } else {
            require_database(&options.data_dir)?;
        }
        refuse_special_file(&file)?;
        // Processes that start together create and migrate the database one after another.
        let lock = match lock_file(&options.data_dir) {
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem && file.exists() => {
                return Self::open_read_only(&file, &options.data_dir.join(LOCK), options);
            }
            locked => locked.map_err(|error| unavailable(&options.data_dir, &error))?,
        };
        // We hold the lock, so any process that was creating the database has finished.
        if options.create.is_none() && fs::metadata(&file).is_ok_and(|file| file.len() == 0) {
            return Err(missing(&options.data_dir));
        }
        refuse_log_alone(&file)?;
        let in_use = hold(&options.data_dir)?;
        atomic_file::sweep(&options.data_dir).map_err(|error| unavailable(&options.data_dir, &error))?;
        // SQLite's other files get the mode of this file. Its content is durable only if its name is.
        own_file(&file)
            .and_then(|_| sync_folder(&options.data_dir))
            .map_err(|error| unavailable(&options.data_dir, &error))?;
        let mut conn = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        conn.busy_timeout(options.busy_timeout)?;
        migrations::refuse_foreign(&conn).map_err(|error| match error {
            StoreError::Failed(why) => StoreError::Failed(format!("{}: {why}", file.display())),
            error => error,
        })?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // FULL: a commit is durable before it is acknowledged. The WAL is truncated to 64 MiB after a burst.
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        conn.pragma_update(None, "cache_size", -65_536)?;
        migrations::run(&mut conn)?;
        let deployment = match stored_deployment(&conn)? {
            Some(kept) => deployment::agree(kept, options.deployment)?,
            None => store_deployment(&conn, options)?,
        };
        drop(lock);

        let wal_index = Arc::new(WalIndex::open(&file)?);
        let readers =
            Arc::new(Readers::open(|| connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY), Arc::clone(&wal_index))?);
        let files = Arc::new(Files::of(&file, &["", "-wal", "-shm"])?);
        let writer = Writer::start(conn, Arc::clone(&readers), wal_index, Arc::clone(&files), options)?;
        let backups = BackupStatus::default();
        Ok(Self { file, files, deployment, writes: Writes::Accepted(writer), readers, backups, _in_use: Some(in_use) })
    }

    fn open_read_only(file: &Path, lock: &Path, options: &Options) -> Result<Self> {
        let read_only = ReadOnly::of(file, lock)?;
        let readers = Arc::new(read_only.open(file)?);
        let deployment = readers.read(stored_deployment)?;
        let deployment = deployment.ok_or_else(|| StoreError::Failed("the database was never completed".into()))?;
        tracing::warn!("disk is read-only, refusing writes");
        Ok(Self {
            file: file.to_owned(),
            files: Arc::new(read_only.files(file)?),
            deployment: deployment::agree(deployment, options.deployment)?,
            writes: Writes::Refused(read_only),
            readers,
            backups: BackupStatus::default(),
            // On a read-only disk, nobody can replace the database.
            _in_use: None,
        })
    }

    /// Returns all migrations and whether the database has them, without changing it.
    pub fn migration_status(data_dir: &Path) -> Result<Vec<MigrationStatus>> {
        let (conn, _in_use) = without_migrating(data_dir)?;
        migrations::status(&conn)
    }

    pub const fn deployment(&self) -> Deployment {
        self.deployment
    }

    pub fn data_dir(&self) -> &Path {
        folder_of(&self.file)
    }

    /// Returns the status of scheduled backups.
    pub const fn backups(&self) -> &BackupStatus {
        &self.backups
    }

    /// Runs a short read on the calling thread, which may serve requests.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.read(read)
    }

    /// Runs a read like [`Self::read`], and ends its transaction. For callers that may stall before the next read.
    pub fn read_once<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.read_once(read)
    }

    /// Runs a read that may take long on a thread for blocking work.
    async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = Arc::clone(&self.readers);
        let read = tokio::task::spawn_blocking(move || readers.read_once(read));
        read.await.map_err(|error| StoreError::Failed(format!("a read ended early: {error}")))?
    }

    /// Runs a write in a batch with other writes; durable once this returns.
    pub async fn submit<T: Send + 'static>(
        &self,
        atomicity: Atomicity,
        write: impl FnOnce(&Batch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer()?.submit(atomicity, write).await
    }

    fn writer(&self) -> Result<&Writer> {
        match &self.writes {
            Writes::Accepted(writer) => Ok(writer),
            Writes::Refused(_) => Err(StoreError::Unavailable("the disk is read-only".into())),
        }
    }

    pub fn version(&self) -> Option<Version> {
        self.readers.version().map(wal_index::Stamp::version)
    }

    pub fn check(&self) -> Result<()> {
        if let Writes::Accepted(writer) = &self.writes {
            writer.check()?;
        }
        self.files.check()?;
        self.read(|conn| Ok(conn.prepare_cached("SELECT 1 FROM meta LIMIT 1")?.query_row([], |_| Ok(()))?))
    }

    pub fn disk(&self) -> Option<Disk> {
        let disk = rustix::fs::statvfs(&self.file).ok()?;
        Some(Disk { free: disk.f_bavail * disk.f_frsize, size: disk.f_blocks * disk.f_frsize })
    }

    pub fn meters(&self) -> Meters<'_> {
        let writers = match &self.writes {
            Writes::Accepted(writer) => vec![("all", writer.meter())],
            Writes::Refused(_) => Vec::new(),
        };
        Meters { writers, readers: self.readers.meter(), reads: self.readers.in_use() as i64, connections: Vec::new() }
    }

    pub async fn failed(&self) -> String {
        match &self.writes {
            Writes::Accepted(writer) => writer.failed().await,
            Writes::Refused(read_only) => read_only.ended(&self.files).await,
        }
    }

    pub async fn close(&self) {
        match &self.writes {
            Writes::Accepted(writer) => writer.close().await,
            Writes::Refused(_) => self.readers.close(),
        }
    }
}

/// Opens a connection with the settings that all connections share.
fn connect(file: &Path, flags: OpenFlags) -> Result<Connection> {
    let conn = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Otherwise an SQLite built with STAT4 prepares a statement again when a parameter is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// Connects to a database without migrating it. Also returns the lock that keeps others from replacing it.
fn without_migrating(data_dir: &Path) -> Result<(Connection, Option<fs::File>)> {
    require_database(data_dir)?;
    let file = data_dir.join(FILE);
    refuse_special_file(&file)?;
    match lock_file(data_dir) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            Ok((ReadOnly::of(&file, &data_dir.join(LOCK))?.connect(&file)?, None))
        }
        locked => {
            let _opening = locked.map_err(|error| unavailable(data_dir, &error))?;
            let in_use = hold(data_dir)?;
            atomic_file::sweep(data_dir).map_err(|error| unavailable(data_dir, &error))?;
            Ok((connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?, Some(in_use)))
        }
    }
}

/// Waits for the lock under which a database is opened or replaced.
fn lock_file(data_dir: &Path) -> std::io::Result<fs::File> {
    let lock = own_file(&data_dir.join(LOCK))?;
    lock.lock()?;
    Ok(lock)
}

/// Takes a shared lock of the data directory, as every process that has its database open. It ends with the process.
fn hold(data_dir: &Path) -> Result<fs::File> {
    let folder = fs::File::open(data_dir).and_then(|folder| folder.lock_shared().map(|()| folder));
    folder.map_err(|error| unavailable(data_dir, &error))
}

fn require_database(dir: &Path) -> Result<()> {
    match fs::metadata(dir.join(FILE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(missing(dir)),
        Err(error) => Err(unavailable(dir, &error)),
    }
}

/// Fails if there is a write-ahead log without its database. SQLite would remove the log while creating a database, and
/// with it the last acknowledged writes.
fn refuse_log_alone(file: &Path) -> Result<()> {
    let log = beside(file, "-wal");
    if has_content(file) || !has_content(&log) {
        return Ok(());
    }
    let (file, log) = (file.display(), log.display());
    Err(StoreError::Failed(format!(
        "{file} is gone and its write-ahead log is not: put the file back under its name, or restore a backup with \
         --force, or move {log} away to begin with an empty database"
    )))
}

fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.len() > 0)
}

/// Fails if the path exists and is not a regular file. Opening a pipe would block until its other end is opened.
fn refuse_special_file(file: &Path) -> Result<()> {
    match fs::metadata(file) {
        Ok(there) if !there.is_file() => Err(StoreError::Failed(format!("{} is no regular file", file.display()))),
        _ => Ok(()),
    }
}

fn missing(dir: &Path) -> StoreError {
    let dir = dir.display();
    let makers = "`petstore serve` or `petstore quickstart` makes one";
    StoreError::Failed(format!("there is no database in {dir}; {makers}"))
}

/// Opens or creates a file that only its owner can access. Its folder may be open to others.
fn own_file(path: &Path) -> std::io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)
}

/// Creates the data directory if it is missing. Only its owner can access it, because it holds password hashes and
/// messages.
fn create_data_dir(dir: &Path) -> Result<()> {
    make_folder(dir).map_err(|error| unavailable(dir, &error))
}

/// Creates a folder and its parents, and syncs each of their names.
pub fn make_folder(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<_> =
        dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let parents = missing.into_iter().filter_map(Path::parent);
    parents.map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).try_for_each(sync_folder)
}

/// Makes files created in a folder, or removed from it, durable.
fn sync_folder(dir: &Path) -> std::io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn stored_deployment(conn: &Connection) -> Result<Option<Deployment>> {
    let kept: Option<String> =
        conn.query_row("SELECT value FROM meta WHERE key = 'deployment'", [], |row| row.get(0)).optional()?;
    kept.map(|kept| deployment::parse(&kept)).transpose()
}

fn store_deployment(conn: &Connection, options: &Options) -> Result<Deployment> {
    let chosen = options.deployment.or(options.create).unwrap_or(Deployment::Production);
    conn.execute("INSERT INTO meta (key, value) VALUES ('deployment', ?1)", [chosen.as_str()])?;
    Ok(chosen)
}

/// Returns the path of a file that SQLite keeps beside the database.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = std::ffi::OsString::from(file);
    path.push(suffix);
    path.into()
}

fn unavailable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}
