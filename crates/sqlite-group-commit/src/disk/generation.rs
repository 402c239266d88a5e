//! Which state of the database file its write-ahead log continues.
//!
//! SQLite applies a log to any file of the right name. Applied to a backup of the same database, to an older copy or to an empty
//! file, the log damages it or hides all of its rows. Losing the log of a killed process loses acknowledged writes.
//!
//! A *generation* is a state of the file, and the log that continues it. Its number, which is random, is in the file's header
//! (`user_version`). When SQLite may restart the log, because the file has all of it, the writer first commits a new
//! number and writes it back. The file therefore has the number only once it has the whole log before. The record in
//! the lock file has the number and the salt of the log (sqlite.org/walformat.html, section 1), so that the next start can
//! tell whether file and log belong together.
//!
//! The log is never removed: see `connect`. Other programs, such as `sqlite3`, write it back and remove it with its index
//! when they close the database of a killed process. The file then has everything, but nothing in it tells that from a file
//! whose log was lost, so a start refuses both until the operator allows the file.
//!
//! Until the first transaction of a log is durable, the record allows any log, and no write has been acknowledged. A start
//! allows any log, too, because another program may write first. The writer records the log with its first write, or as soon
//! as it is idle. Twice a second, it also records the last commit, so that an older copy of the log is rejected.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::Connection;

use super::folder::{Folder, beside, has_content, if_there, own_file, unavailable};
use super::wal_index::{LogEnd, WalIndex};
use crate::{Error, Result};

/// Size of a record. Smaller than a sector, so that a power loss leaves the old or the new one.
const SIZE: usize = 112;

/// Position of `user_version` in the database file (sqlite.org/fileformat2.html, section 1.3).
const NUMBER: u64 = 60;

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
    log: Log,
    /// The last commit that is known, of this log or the last one. Without pages, only the salt is known. SQLite adds 1 to the
    /// salt when it restarts the log.
    end: LogEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// A new generation is being started.
    Any,
    /// The file has everything. A power loss may undo the truncation of the log.
    Empty,
    /// The log has the commit, or has restarted after it.
    Known,
    /// The log has the commit, the last one of a process whose files were taken away.
    Until,
}

impl Log {
    /// The states in their order, and their words in the lock file.
    const WORDS: [(Self, &str); 4] =
        [(Self::Any, "any"), (Self::Empty, "empty"), (Self::Known, "known"), (Self::Until, "until")];
}

/// The record of a folder that this process may change.
#[derive(Debug)]
pub struct Generations {
    lock: File,
    /// Kept open, because there may be no file descriptor when it is due for a sync.
    log: Option<File>,
    folder: Folder,
    /// True if no other process had the database open when this one opened it.
    pub was_alone: bool,
}

/// Fails unless the files of a folder belong together. A folder that has had a database must still have its files.
/// Opens and closes the database file, so no connection of this process may be open.
pub fn check(folder: &Folder) -> Result<()> {
    let (file, lock) = (folder.database(), folder.lock());
    let (log, index, journal) = (beside(&file, "-wal"), beside(&file, "-shm"), beside(&file, "-journal"));
    let name = folder.name();
    let content = if_there(std::fs::read_to_string(&lock)).map_err(unavailable(&lock))?.unwrap_or_default();
    let record = Record::parse(&content, folder)?;
    if !has_content(&file) {
        // A process that is killed while it creates a database leaves an empty file.
        let had_database =
            !content.is_empty() || has_content(&log) || !file.exists() && (log.exists() || index.exists());
        return if had_database || folder.has_traces() { Err(gone(folder, &file)) } else { Ok(()) };
    }
    // A file without a header is not a database.
    let number = File::open(&file).map_err(unavailable(&file)).map(|opened| word_at(&opened, NUMBER).unwrap_or(0))?;
    match record {
        // Without a log, this is a copy of the file in another folder.
        None if content.is_empty() && number != 0 && (log.exists() || index.exists()) => Err(gone(folder, &lock)),
        None => Ok(()),
        Some(record) if !record.numbers.contains(&number) => {
            Err(apart(folder, &file, &format!("it is not the file that was here when {name} last ran")))
        }
        // There is one only while a database is created. SQLite would apply it before it reads the log.
        Some(_) if has_content(&journal) => Err(apart(folder, &journal, &format!("it does not belong to {name}.db"))),
        Some(record) => record.check_log(folder, &log),
    }
}

fn word_at(file: &File, offset: u64) -> io::Result<u32> {
    let mut word = [0; 4];
    file.read_exact_at(&mut word, offset).map(|()| u32::from_be_bytes(word))
}

fn gone(folder: &Folder, path: &Path) -> Error {
    apart(folder, path, "it was removed or moved away, and this folder has had a database")
}

fn apart(folder: &Folder, path: &Path, why: &str) -> Error {
    let what = format!("{}: {why}", path.display());
    Error::Apart { what, lock: folder.lock().display().to_string(), name: folder.name() }
}

/// Allows a log that SQLite or another program begins before the writer does. Called before a database that was checked is
/// opened.
pub fn allow_new_log(lock: &File, folder: &Folder) -> Result<()> {
    match read_record(lock, folder)? {
        Some(record) if record.log == Log::Empty && !has_content(&folder.log()) => {
            write(lock, Record { log: Log::Any, ..record }).map_err(unavailable(&folder.lock()))
        }
        _ => Ok(()),
    }
}

/// Fails unless the open database is the one that was checked.
pub fn check_opened(lock: &File, folder: &Folder, conn: &Connection) -> Result<()> {
    match read_record(lock, folder)? {
        Some(record) if !record.numbers.contains(&number(conn)?) => {
            Err(apart(folder, &folder.database(), "it was replaced while it was opened"))
        }
        _ => Ok(()),
    }
}

/// Records a file that has everything, and is of no generation yet: see [`without_number`].
pub fn record_restored(lock: &File) -> io::Result<()> {
    write(lock, Record { numbers: [0; 2], log: Log::Empty, end: LogEnd::default() })
}

/// Takes the number from a copy, so that it is not mistaken for the file that it was copied from.
pub fn without_number(copy: &Connection) -> Result<()> {
    Ok(copy.pragma_update(None, "user_version", 0)?)
}

impl Generations {
    /// Takes over the record of a folder, in its lock file. `None` if processes of an earlier version, which keep no
    /// record, have the database open.
    pub fn open(lock: &File, folder: &Folder, was_alone: bool) -> Result<Option<Self>> {
        // Duplicates the open file, because another one may have taken its name.
        let lock = lock.try_clone().map_err(unavailable(&folder.lock()))?;
        let generations = Self { lock, log: None, folder: folder.clone(), was_alone };
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

    /// Returns the last commit that is known.
    fn last_end(&self) -> Result<LogEnd> {
        Ok(self.record()?.map_or_else(LogEnd::default, |record| record.end))
    }

    /// Allows any log. Remembers the last commit of the log, if it has one.
    fn allow_log_of(&self, numbers: [u32; 2], end: LogEnd) -> Result<()> {
        let end = if end.frames > 0 { end } else { self.last_end()? };
        self.write(Record { numbers, log: Log::Any, end })
    }

    /// Returns the last commit that is recorded, if it is one of the log. Called in a transaction that can write.
    pub fn recorded(&self, index: &WalIndex) -> Result<Option<LogEnd>> {
        let is_of_log = |record: &Record| {
            record.log == Log::Known && record.end.frames > 0 && record.end.salts == index.log_end().salts
        };
        Ok(self.record()?.filter(is_of_log).map(|record| record.end))
    }

    /// Opens the log, and writes the first record of a folder.
    pub fn begin(&mut self, conn: &Connection) -> Result<()> {
        let log = self.folder.log();
        self.log = Some(File::open(&log).map_err(unavailable(&log))?);
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
        // A commit of the new number that failed may have left it in the log.
        let may_have = |[old, _]: &[u32; 2]| *old == number || !index.is_written_back();
        let recorded = self.recorded_with(number)?.filter(may_have);
        Ok(recorded.unwrap_or([number; 2]))
    }

    /// Begins a log, if it is empty, with a commit that changes nothing else. Called in a transaction that can write.
    pub fn begin_log(&self, conn: &Connection, numbers: [u32; 2], index: &WalIndex) -> Result<()> {
        self.allow_log_of(numbers, index.log_end())?;
        conn.pragma_update(None, "application_id", new_number(conn)?.cast_signed())?;
        Ok(conn.execute_batch("COMMIT")?)
    }

    /// Records the file and the log, and returns its last commit. Called in a transaction that can write. `None` if another process
    /// has started a later generation or emptied the log, so that any is allowed.
    pub fn record_log(&self, conn: &Connection, numbers: [u32; 2], index: &WalIndex) -> Result<Option<LogEnd>> {
        let end = index.log_end();
        if end.frames == 0 || !numbers.contains(&number(conn)?) {
            return Ok(None);
        }
        // Another program may not sync its commits.
        let synced = self.log.as_ref().map_or(Ok(()), File::sync_data);
        synced.map_err(|error| Error::SyncFailed(format!("{}.db-wal: {error}", self.folder.name())))?;
        self.write(Record { numbers, log: Log::Known, end })?;
        Ok(Some(end))
    }

    /// Records the last commit of a log that is recorded. Not synced, because the record before it is right, too.
    pub fn renew_record(&self, end: LogEnd) -> Result<()> {
        let Some(record) = self.record()?.filter(|record| record.log == Log::Known) else { return Ok(()) };
        put_line(&self.lock, &line(Record { end, ..record })).map_err(unavailable(&self.folder.lock()))
    }

    /// Records that the file has everything. Called in a transaction that can write, while the log is empty.
    pub fn record_empty(&self, conn: &Connection, index: &WalIndex) -> Result<()> {
        let (numbers, end) = (self.numbers(conn, index)?, self.last_end()?);
        // The rest of a failed commit may not have been truncated.
        let has_rest = has_content(&self.folder.log());
        self.write(Record { numbers, log: if has_rest { Log::Any } else { Log::Empty }, end })
    }

    /// Keeps every process from starting until the log has the last commit of this one. Called once files were taken away.
    pub fn require_commits(&self, index: &WalIndex) -> Result<()> {
        let (end, record) = (index.log_end(), self.record()?);
        let Some(record) = record.filter(|_| end.frames > 0) else { return Ok(()) };
        let record = Record { log: Log::Until, end, ..record };
        self.write(record)?;
        // The lock file may have been replaced, but another database's keeps its record.
        let path = self.folder.lock();
        let lock = own_file(&path).map_err(unavailable(&path))?;
        match read_record(&lock, &self.folder)? {
            Some(other) if !other.numbers.iter().any(|number| record.numbers.contains(number)) => Ok(()),
            _ => write(&lock, record).map_err(unavailable(&path)),
        }
    }

    fn record(&self) -> Result<Option<Record>> {
        read_record(&self.lock, &self.folder)
    }

    fn write(&self, record: Record) -> Result<()> {
        let name = format!("{}.lock", self.folder.name());
        write(&self.lock, record).map_err(|error| match error.kind() {
            // Some file systems need space to overwrite.
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => unavailable(name.as_ref())(error),
            _ => Error::SyncFailed(format!("{name}: {error}")),
        })
    }
}

/// Allows any file and log, while a restore replaces them.
pub fn allow_any(lock: &File) -> io::Result<()> {
    write_line(lock, UNCHECKED)
}

fn read_record(lock: &File, folder: &Folder) -> Result<Option<Record>> {
    let mut content = [0; SIZE];
    let length = lock.read_at(&mut content, 0).map_err(unavailable(&folder.lock()))?;
    Record::parse(&String::from_utf8_lossy(&content[..length]), folder)
}

fn write(lock: &File, record: Record) -> io::Result<()> {
    write_line(lock, &line(record))
}

fn line(record: Record) -> String {
    let ([old, new], LogEnd { frames, salts, checksum }) = (record.numbers, record.end);
    let end = format!("{frames:08x} {:08x} {:08x} {:08x} {:08x}", salts[0], salts[1], checksum[0], checksum[1]);
    format!("file {old:08x} {new:08x} log {} {end}", Log::WORDS[record.log as usize].1)
}

fn write_line(lock: &File, line: &str) -> io::Result<()> {
    put_line(lock, line)?;
    lock.sync_data()
}

fn put_line(lock: &File, line: &str) -> io::Result<()> {
    lock.write_all_at(format!("{line:<width$}\n", width = SIZE - 1).as_bytes(), 0)
}

/// Returns a random number that is not 0, which databases of earlier versions have.
fn new_number(conn: &Connection) -> Result<u32> {
    Ok(conn.query_row("SELECT abs(random() % 4294967295) + 1", [], |row| row.get(0))?)
}

/// Returns the number of a database. 0 if it is a copy, or has not been served yet.
pub fn number(conn: &Connection) -> Result<u32> {
    Ok(conn.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))?.cast_unsigned())
}

impl Record {
    /// Parses the content of a lock file. `None` if it allows any file and log.
    fn parse(content: &str, folder: &Folder) -> Result<Option<Self>> {
        if content.is_empty() || content.trim() == UNCHECKED {
            return Ok(None);
        }
        let words: Vec<_> = content.split_ascii_whitespace().collect();
        Self::of_words(&words).map(Some).ok_or_else(|| apart(folder, &folder.lock(), "its content is damaged"))
    }

    /// Also parses the earlier forms, which had `mark` and `salt` before `log`, and knew the salt instead of the last commit.
    fn of_words(words: &[&str]) -> Option<Self> {
        let hex = |word: &str| u32::from_str_radix(word, 16).ok();
        let &["file", old, new, ref rest @ ..] = words else { return None };
        let rest = if let ["mark", _, rest @ ..] = rest { rest } else { rest };
        let (salt, rest) = if let ["salt", salt, rest @ ..] = rest { (*salt, rest) } else { ("0", rest) };
        let of_salt = |salt: &str| Some(LogEnd { salts: [hex(salt)?, 0], ..LogEnd::default() });
        let (log, end) = match rest {
            ["log", "salt", salt] => ("known", of_salt(salt)?),
            ["log", log] => (*log, of_salt(salt)?),
            ["log", log, frames, first, second, checksum, last] => {
                let (salts, checksum) = ([hex(first)?, hex(second)?], [hex(checksum)?, hex(last)?]);
                (*log, LogEnd { frames: hex(frames)?, salts, checksum })
            }
            _ => return None,
        };
        let log = Log::WORDS.into_iter().find(|(_, word)| *word == log)?.0;
        Some(Self { numbers: [hex(old)?, hex(new)?], log, end })
    }

    /// Fails unless the log belongs to the record.
    fn check_log(self, folder: &Folder, path: &Path) -> Result<()> {
        let log = if_there(File::open(path)).map_err(unavailable(path))?;
        let word = |offset| log.as_ref().and_then(|log| word_at(log, offset).ok());
        let (end, salt) = (self.end, word(16));
        let has_end = match end.frames.checked_sub(1) {
            None => salt == Some(end.salts[0]),
            Some(before) => word(8).is_some_and(|page_size| {
                let last = LOG_HEADER + u64::from(before) * (FRAME_HEADER + u64::from(page_size));
                let words = [8, 12, 16, 20].map(|offset| word(last + offset));
                words == [end.salts[0], end.salts[1], end.checksum[0], end.checksum[1]].map(Some)
            }),
        };
        let has_restarted = salt == Some(end.salts[0].wrapping_add(1));
        let belongs = match self.log {
            Log::Any => true,
            Log::Empty => has_end || has_restarted || !has_content(path),
            Log::Known => has_end || has_restarted,
            Log::Until => has_end,
        };
        match belongs {
            true => Ok(()),
            false if log.is_none() => Err(gone(folder, path)),
            false => {
                let why = format!("it does not continue {}.db, or lacks its last commits", folder.name());
                Err(apart(folder, path, &why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_forms_of_the_record_are_read() {
        let folder = Folder::new("", "shop");
        let of_salt = |salt| LogEnd { salts: [salt, 0], ..LogEnd::default() };
        let end = LogEnd { frames: 2, salts: [3, 4], checksum: [5, 6] };
        for (line, log, expected) in [
            ("file 1 f log any 0 0 0 0 0", Log::Any, LogEnd::default()),
            ("file 1 f log known 2 3 4 5 6", Log::Known, end),
            ("file 1 f mark 7 log salt 8", Log::Known, of_salt(8)),
            ("file 1 f mark 7 log empty", Log::Empty, of_salt(0)),
            ("file 1 f mark 7 salt 8 log known", Log::Known, of_salt(8)),
            ("file 1 f mark 7 salt 8 log until 2 3 4 5 6", Log::Until, end),
        ] {
            let record = Record::parse(line, &folder).unwrap().unwrap();
            assert_eq!(record, Record { numbers: [1, 15], log, end: expected }, "{line}");
        }
        assert_eq!(Record::parse(UNCHECKED, &folder).unwrap(), None);
        assert!(Record::parse("file 1 f log known", &folder).is_ok());
        assert!(Record::parse("file 1 f log other", &folder).is_err());
    }

    #[test]
    fn log_that_was_empty_may_have_its_salt_or_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path(), "shop");
        let path = folder.log();
        let record = Record::parse("file 1 f mark 7 salt 8 log empty", &folder).unwrap().unwrap();
        assert!(record.check_log(&folder, &path).is_ok(), "without a log");
        for (salt, is_taken) in [(7, false), (8, true), (9, true), (10, false)] {
            let header: [u32; 8] = [0x377f_0682, 3_007_000, 4_096, 0, salt, 1, 0, 0];
            std::fs::write(&path, header.map(u32::to_be_bytes).concat()).unwrap();
            assert_eq!(record.check_log(&folder, &path).is_ok(), is_taken, "{salt}");
        }
    }
}
