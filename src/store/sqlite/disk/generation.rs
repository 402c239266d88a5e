//! Which state of the database file its write-ahead log continues.
//!
//! SQLite applies a log to any file of the right name. Applied to a backup of the same store, to an older copy or to an empty
//! file, the log damages it or hides all of its rows. Losing the log of a killed process loses acknowledged writes.
//!
//! A *generation* is a state of the file, and the log that continues it. Its number, which is random, is in the file's header
//! (`user_version`). When SQLite may restart the log, because the file has all of it, the writer first commits a new
//! number and writes it back. The file therefore has the number only once it has the whole log before. The record in
//! `petstore.lock` has the number and the salt of the log (sqlite.org/walformat.html, section 1), so that the next start can
//! tell whether file and log belong together.
//!
//! petstore never removes the log: see `connect`. Other programs, such as `sqlite3`, write it back and remove it with its index
//! when they close the database of a killed process. The first transaction of a log, and one after each incomplete checkpoint,
//! therefore changes the mark in the file's header (`application_id`). Without a log, a file that has the mark is complete.
//!
//! Until the first transaction of a log is durable, the record allows any log, and no write has been acknowledged. A start
//! allows any log, too, because another program may write first. The writer records the log with its first write, or as soon
//! as it is idle.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::data_dir::{FILE, LOCK, beside, has_content, own_file, unavailable};
use super::wal_index::{LogEnd, WalIndex};
use crate::store::{Result, StoreError};

/// Size of a record. Smaller than a sector, so that a power loss leaves the old or the new one.
const SIZE: usize = 112;

/// Positions of `user_version` and `application_id` in the database file (sqlite.org/fileformat2.html, section 1.3).
const NUMBER: u64 = 60;
const MARK: u64 = 68;

/// Sizes of the log's header and of the header of each page in it (sqlite.org/walformat.html, section 1).
pub const LOG_HEADER: u64 = 32;
pub const FRAME_HEADER: u64 = 24;

/// Content of a lock file that allows any file and log.
const UNCHECKED: &str = "unchecked";

/// The files that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// The file has one of these numbers: while one replaces the other, either of them.
    numbers: [u32; 2],
    mark: u32,
    /// The salt of the last log that is known, or 0. SQLite adds 1 when it restarts the log.
    salt: u32,
    log: Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// A new generation is being started.
    Any,
    /// The file has everything. A power loss may undo the truncation of the log.
    Empty,
    /// The log has the salt.
    Known,
    /// The log has at least this commit, the last one of a process whose files were taken away.
    Until(LogEnd),
}

/// The record of a data directory that this process may change.
#[derive(Debug)]
pub struct Generations {
    lock: File,
    data_dir: PathBuf,
    /// True if no other process had the database open when this one opened it.
    pub was_alone: bool,
}

/// Fails unless the files of a data directory belong together. A folder that has had a store must still have its files.
/// Opens and closes the database file, so no connection of this process may be open.
pub fn check(data_dir: &Path) -> Result<()> {
    let (file, lock) = (data_dir.join(FILE), data_dir.join(LOCK));
    let (log, index) = (beside(&file, "-wal"), beside(&file, "-shm"));
    let content = read(&lock)?;
    let record = Record::parse(&content, &lock)?;
    if !has_content(&file) {
        // A process that is killed while it creates a database leaves an empty file.
        let had_store = !content.is_empty() || has_content(&log) || !file.exists() && (log.exists() || index.exists());
        return if had_store { Err(gone(&file)) } else { Ok(()) };
    }
    let opened = File::open(&file).map_err(unavailable(&file))?;
    // A file without a header is not a database.
    let [number, mark] = [NUMBER, MARK].map(|offset| word_at(&opened, offset).unwrap_or(0));
    match record {
        // Without a log, this is a copy of the file in another folder.
        None if content.is_empty() && number != 0 && (log.exists() || index.exists()) => Err(gone(&lock)),
        None => Ok(()),
        Some(record) if !record.numbers.contains(&number) => {
            Err(apart(&file, "it is not the file that was here when petstore last ran"))
        }
        // Another program has written the log back, and truncated or removed it.
        Some(record) if record.mark == mark && log.exists() && !has_content(&log) => Ok(()),
        Some(record) if record.mark == mark && !log.exists() && !index.exists() => Ok(()),
        Some(record) => record.check_log(&log),
    }
}

fn word_at(file: &File, offset: u64) -> io::Result<u32> {
    let mut word = [0; 4];
    file.read_exact_at(&mut word, offset).map(|()| u32::from_be_bytes(word))
}

fn gone(path: &Path) -> StoreError {
    apart(path, "it was removed or moved away, and this folder has had a store")
}

fn apart(path: &Path, why: &str) -> StoreError {
    let (path, lock) = (path.display(), path.with_file_name(LOCK));
    let lock = lock.display();
    StoreError::Failed(format!(
        "{path}: {why}. Put back the files that belong together, or replace them by a backup (petstore restore --force). If \
         another program has opened and closed the database since, write `{UNCHECKED}` into {lock}"
    ))
}

fn read(lock: &Path) -> Result<String> {
    match std::fs::read_to_string(lock) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(unavailable(lock)),
    }
}

/// Allows a log that SQLite or another program begins before the writer does. Called before a database that was checked is
/// opened.
pub fn allow_new_log(lock: &File, data_dir: &Path) -> Result<()> {
    let path = data_dir.join(LOCK);
    match Record::parse(&read(&path)?, &path)? {
        Some(record) if !has_content(&beside(&data_dir.join(FILE), "-wal")) => {
            write(lock, Record { log: Log::Any, ..record }).map_err(unavailable(&path))
        }
        _ => Ok(()),
    }
}

impl Generations {
    /// Takes over the record of a data directory. `None` if processes of an earlier version, which keep no record, have the
    /// database open.
    pub fn open(data_dir: &Path, was_alone: bool) -> Result<Option<Self>> {
        let lock = File::options().read(true).write(true).open(data_dir.join(LOCK)).map_err(unavailable(data_dir))?;
        let generations = Self { lock, data_dir: data_dir.to_owned(), was_alone };
        Ok((was_alone || generations.record()?.is_some()).then_some(generations))
    }

    /// Allows any log, before something else than the writer changes the database.
    pub fn allow_any_log(&self, conn: &Connection) -> Result<()> {
        let number = number(conn)?;
        let numbers = self.recorded_with(number)?.unwrap_or([number; 2]);
        self.allow_log_of(numbers, LogEnd::default())
    }

    /// Returns the numbers of the record, if one of them is `number`.
    fn recorded_with(&self, number: u32) -> Result<Option<[u32; 2]>> {
        Ok(self.record()?.map(|record| record.numbers).filter(|numbers| numbers.contains(&number)))
    }

    /// Returns the salt of the last log that is known, or 0.
    fn last_salt(&self) -> Result<u32> {
        Ok(self.record()?.map_or(0, |record| record.salt))
    }

    /// Allows any log. Remembers the salt of the log, if it has a commit.
    fn allow_log_of(&self, numbers: [u32; 2], end: LogEnd) -> Result<()> {
        let salt = if end.frames > 0 { end.salts[0] } else { self.last_salt()? };
        self.write(Record { numbers, mark: 0, salt, log: Log::Any })
    }

    /// Writes the first record of a folder.
    pub fn begin(&self, conn: &Connection) -> Result<()> {
        if self.record()?.is_some() { Ok(()) } else { self.allow_any_log(conn) }
    }

    /// Starts a generation: commits a new number, which is to be written back. Called in a transaction that can write, while the
    /// file has the whole log.
    pub fn start(&self, conn: &Connection, index: &WalIndex) -> Result<()> {
        let number = number(conn)?;
        // A power loss may bring back a commit whose sync failed.
        let unfinished = self.recorded_with(number)?.filter(|[old, new]| *old == number && new != old);
        let numbers = match unfinished {
            Some(numbers) => numbers,
            None => [number, new_number(conn)?],
        };
        self.allow_log_of(numbers, index.log_end())?;
        conn.pragma_update(None, "user_version", numbers[1].cast_signed())?;
        Ok(conn.execute_batch("COMMIT")?)
    }

    /// Returns the numbers that the file may have. Called in a transaction that can write.
    pub fn numbers(&self, conn: &Connection, index: &WalIndex) -> Result<[u32; 2]> {
        let number = number(conn)?;
        let recorded = self.recorded_with(number)?.filter(|_| !index.is_written_back());
        Ok(recorded.unwrap_or([number; 2]))
    }

    /// Commits a new mark. Called in a transaction that can write. A kill or a power loss during the commit may leave the old
    /// mark or the new one, so the record, which is written before, allows both.
    pub fn mark(&self, conn: &Connection, numbers: [u32; 2], index: &WalIndex) -> Result<()> {
        self.allow_log_of(numbers, index.log_end())?;
        conn.pragma_update(None, "application_id", new_number(conn)?.cast_signed())?;
        Ok(conn.execute_batch("COMMIT")?)
    }

    /// Records the file and the log. Called in a transaction that can write, after the mark was committed. Returns the salt of the
    /// log. `None` if another process has started a later generation or emptied the log, so that any is allowed.
    pub fn record_log(&self, conn: &Connection, numbers: [u32; 2], index: &WalIndex) -> Result<Option<u32>> {
        let LogEnd { frames, salts: [salt, _], .. } = index.log_end();
        if frames == 0 || !numbers.contains(&number(conn)?) {
            return Ok(None);
        }
        self.write(Record { numbers, mark: header_word(conn, "application_id")?, salt, log: Log::Known })?;
        Ok(Some(salt))
    }

    /// Records that the file has everything. Called in a transaction that can write, while the log is empty.
    pub fn record_empty(&self, conn: &Connection, index: &WalIndex) -> Result<()> {
        let (numbers, salt) = (self.numbers(conn, index)?, self.last_salt()?);
        // What a failed commit has left may not have been truncated.
        let has_rest = has_content(&beside(&self.data_dir.join(FILE), "-wal"));
        let log = if has_rest { Log::Any } else { Log::Empty };
        self.write(Record { numbers, mark: header_word(conn, "application_id")?, salt, log })
    }

    /// Keeps every process from starting until the log has the last commit of this one. Called once files were taken away.
    pub fn require_commits(&self, index: &WalIndex) -> Result<()> {
        let (end, record) = (index.log_end(), self.record()?);
        let Some(record) = record.filter(|_| end.frames > 0) else { return Ok(()) };
        let record = Record { log: Log::Until(end), ..record };
        self.write(record)?;
        // The lock file may have been replaced.
        let path = self.data_dir.join(LOCK);
        own_file(&path).and_then(|lock| write(&lock, record)).map_err(unavailable(&path))
    }

    fn record(&self) -> Result<Option<Record>> {
        let path = self.data_dir.join(LOCK);
        let mut content = [0; SIZE];
        let length = self.lock.read_at(&mut content, 0).map_err(unavailable(&path))?;
        Record::parse(&String::from_utf8_lossy(&content[..length]), &path)
    }

    fn write(&self, record: Record) -> Result<()> {
        write(&self.lock, record).map_err(|error| match error.kind() {
            // Some file systems need space to overwrite.
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => unavailable(Path::new(LOCK))(error),
            _ => StoreError::SyncFailed(format!("{LOCK}: {error}")),
        })
    }
}

/// Allows any file and log, while a restore replaces them.
pub fn allow_any(lock: &File) -> io::Result<()> {
    write_line(lock, UNCHECKED)
}

fn write(lock: &File, record: Record) -> io::Result<()> {
    let [old, new] = record.numbers;
    let log = match record.log {
        Log::Any => "any".to_owned(),
        Log::Empty => "empty".to_owned(),
        Log::Known => "known".to_owned(),
        Log::Until(LogEnd { frames, salts, checksum }) => {
            format!("until {frames:08x} {:08x} {:08x} {:08x} {:08x}", salts[0], salts[1], checksum[0], checksum[1])
        }
    };
    write_line(lock, &format!("file {old:08x} {new:08x} mark {:08x} salt {:08x} log {log}", record.mark, record.salt))
}

fn write_line(lock: &File, line: &str) -> io::Result<()> {
    lock.write_all_at(format!("{line:<width$}\n", width = SIZE - 1).as_bytes(), 0)?;
    lock.sync_data()
}

/// Returns a random number that is not 0, which databases of earlier versions have.
fn new_number(conn: &Connection) -> Result<u32> {
    Ok(conn.query_row("SELECT abs(random() % 4294967295) + 1", [], |row| row.get(0))?)
}

fn number(conn: &Connection) -> Result<u32> {
    header_word(conn, "user_version")
}

fn header_word(conn: &Connection, pragma: &str) -> Result<u32> {
    Ok(conn.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0))?.cast_unsigned())
}

impl Record {
    /// Parses the content of a lock file. `None` if it allows any file and log.
    fn parse(content: &str, lock: &Path) -> Result<Option<Self>> {
        if content.is_empty() || content.trim() == UNCHECKED {
            return Ok(None);
        }
        let words: Vec<_> = content.split_ascii_whitespace().collect();
        Self::of_words(&words).map(Some).ok_or_else(|| apart(lock, "its content is damaged"))
    }

    fn of_words(words: &[&str]) -> Option<Self> {
        let hex = |word: &str| u32::from_str_radix(word, 16).ok();
        let &["file", old, new, "mark", mark, "salt", salt, "log", ref log @ ..] = words else { return None };
        let log = match *log {
            ["any"] => Log::Any,
            ["empty"] => Log::Empty,
            ["known"] => Log::Known,
            ["until", frames, first, second, checksum, rest] => Log::Until(LogEnd {
                frames: hex(frames)?,
                salts: [hex(first)?, hex(second)?],
                checksum: [hex(checksum)?, hex(rest)?],
            }),
            _ => return None,
        };
        Some(Self { numbers: [hex(old)?, hex(new)?], mark: hex(mark)?, salt: hex(salt)?, log })
    }

    /// Fails unless the log belongs to the record.
    fn check_log(self, path: &Path) -> Result<()> {
        let log = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(unavailable(path))?),
        };
        let word = |offset| log.as_ref().and_then(|log| word_at(log, offset).ok());
        let has_salt = word(16).is_some_and(|found| found.wrapping_sub(self.salt) <= 1);
        let belongs = match self.log {
            Log::Any => true,
            Log::Empty => has_salt || !has_content(path),
            Log::Known => has_salt,
            Log::Until(end) => word(8).is_some_and(|page_size| {
                let last = LOG_HEADER + u64::from(end.frames - 1) * (FRAME_HEADER + u64::from(page_size));
                let words = [8, 12, 16, 20].map(|offset| word(last + offset));
                words == [end.salts[0], end.salts[1], end.checksum[0], end.checksum[1]].map(Some)
            }),
        };
        match belongs {
            true => Ok(()),
            false if log.is_none() => Err(gone(path)),
            false => Err(apart(path, "it does not continue petstore.db, or lacks its last commits")),
        }
    }
}
