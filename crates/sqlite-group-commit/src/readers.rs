//! Read-only connections, used on the calling thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

use crate::disk::folder::FolderLock;
use crate::disk::wal_index::{Version, WalIndex};
use crate::history::History;
use crate::observer::Observer;
use crate::{Error, Options, Result};

/// One connection per thread that reads.
///
/// A read transaction stays open until a read notices a commit. This saves its locks, which cost a third of a short read. The
/// first transaction after a commit of another process ends with its read, because it would hold back the checkpoints of a
/// process that commits all the time.
#[derive(Debug)]
pub struct Readers {
    slots: Box<[Slot]>,
    observer: Arc<dyn Observer>,
    /// Set during a checkpoint, which open transactions would hold back, and always if only other processes can write.
    keep_nothing: AtomicBool,
    closed: AtomicBool,
    pub history: History,
    // Must close after the connections above: see `WalIndex`.
    wal_index: Arc<WalIndex>,
    /// Lock that keeps other processes from replacing the database, and this one from opening it again. The writer drops its
    /// connection before the readers.
    _in_use: Arc<FolderLock>,
}

/// A reader. `None` after the database was closed.
type Slot = Mutex<Option<Reader>>;

#[derive(Debug)]
struct Reader {
    conn: Connection,
    /// Version that the last transaction sees. `None` before the first one.
    sees: Option<Version>,
    /// True if it was used since the last call of `release_idle`.
    used: bool,
    /// Number of reads so far.
    reads: u64,
}

/// Says that the database was closed.
pub const CLOSED: &str = "the database is closed";

/// One in this many reads is timed. Two clock readings cost 1 % of a request over HTTP.
const TIMED: u64 = 16;

impl Readers {
    /// Opens the connections with `connect`. If `keep` is false, no transaction ever stays open.
    pub fn open(
        options: &Options,
        keep: bool,
        connect: impl Fn() -> Result<Connection>,
        wal_index: Arc<WalIndex>,
        in_use: Arc<FolderLock>,
    ) -> Result<Self> {
        let slots = (0..options.readers.max(1))
            .map(|_| {
                let conn = connect()?;
                conn.pragma_update(None, "query_only", true)?;
                conn.pragma_update(None, "cache_size", -16_384)?;
                Ok(Mutex::new(Some(Reader { conn, sees: None, used: false, reads: 0 })))
            })
            .collect::<Result<_>>()?;
        let (keep_nothing, closed) = (AtomicBool::new(!keep), AtomicBool::new(false));
        let (observer, history) = (Arc::clone(&options.observer), History::new(wal_index.version()));
        Ok(Self { slots, observer, keep_nothing, closed, history, wal_index, _in_use: in_use })
    }

    /// Returns the version that a read would see now. `None` if the database is closed.
    #[inline]
    pub fn version(&self) -> Option<Version> {
        (!self.closed.load(Ordering::SeqCst)).then(|| self.wal_index.version())
    }

    /// Runs a read. If `keep` is true, its transaction stays open for the next one.
    pub fn read<T, E: From<Error>>(&self, keep: bool, read: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        let mut slot = self.slot();
        let reader = slot.as_mut().ok_or_else(|| Error::Unavailable(CLOSED.into()))?;
        let began = reader.reads.is_multiple_of(TIMED).then(Instant::now);
        reader.reads += 1;
        // Taken before the transaction begins, so that the next read notices a commit in between.
        let now = self.wal_index.version();
        let mut keep = keep;
        if reader.sees != Some(now) || reader.conn.is_autocommit() {
            keep &= reader.sees == Some(now) || self.history.epoch(&now).is_some();
            reader.begin(now)?;
        }
        reader.used = true;
        let result = read(&reader.conn);
        if result.is_err() || !keep || self.keep_nothing.load(Ordering::SeqCst) {
            reader.release();
        }
        if let Some(began) = began {
            self.observer.read(began.elapsed());
        }
        result
    }

    /// Returns the number of connections in use.
    pub fn in_use(&self) -> usize {
        self.slots.iter().filter(|slot| slot.try_lock().is_none()).count()
    }

    /// Ends the transactions that were not used since the last call. An idle reader must not hold the WAL back.
    pub fn release_idle(&self) {
        for slot in &self.slots {
            if let Some(mut slot) = slot.try_lock()
                && let Some(reader) = slot.as_mut()
                && !std::mem::take(&mut reader.used)
            {
                reader.release();
            }
        }
    }

    /// Closes all connections, so that none of them holds back the writer's last checkpoint.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for slot in &self.slots {
            *slot.lock() = None;
        }
    }

    /// Runs `work` while no transaction stays open between reads. Waits at most `limit` for reads in progress, because a
    /// count may take long.
    pub fn without_kept<T>(&self, limit: Duration, work: impl FnOnce() -> T) -> T {
        self.keep_nothing.store(true, Ordering::SeqCst);
        let until = Instant::now() + limit;
        for slot in &self.slots {
            let mut free = slot.try_lock_until(until);
            free.iter_mut().for_each(|slot| slot.iter_mut().for_each(Reader::release));
        }
        let result = work();
        self.keep_nothing.store(false, Ordering::SeqCst);
        result
    }

    /// Returns the connection of this thread. If another thread that shares it is reading, returns any free connection.
    #[inline]
    fn slot(&self) -> MutexGuard<'_, Option<Reader>> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed));
        let own = NUMBER.with(|number| number % self.slots.len());
        let (before, from_own) = self.slots.split_at(own);
        from_own.iter().chain(before).find_map(Mutex::try_lock).unwrap_or_else(|| self.slots[own].lock())
    }
}

impl Reader {
    /// Begins a transaction that sees `version` or a later one.
    fn begin(&mut self, version: Version) -> Result<()> {
        self.release();
        self.conn.prepare_cached("BEGIN")?.execute([])?;
        self.sees = Some(version);
        Ok(())
    }

    fn release(&mut self) {
        if !self.conn.is_autocommit() {
            // A failure does not matter, because the end of a later read tries again.
            let _ = self.conn.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use rusqlite::Row;

    use super::*;

    #[test]
    fn commit_of_another_process_is_written_back_after_a_read() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("test.db");
        let other = Connection::open(&database).unwrap();
        other.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE numbers (number)").unwrap();
        let options = Options { readers: 1, ..Options::default() };
        let (wal_index, in_use) = (WalIndex::open(&database).unwrap(), FolderLock(std::fs::File::open(".").unwrap()));
        let connect = || Ok(Connection::open(&database)?);
        let readers = Readers::open(&options, true, connect, Arc::new(wal_index), Arc::new(in_use)).unwrap();
        let read = || {
            let count = "SELECT count(*) FROM numbers";
            readers.read(true, |conn| Ok::<i64, Error>(conn.query_row(count, [], |row| row.get(0))?)).unwrap()
        };
        let commit_and_write_back = || {
            other.execute("INSERT INTO numbers VALUES (1)", []).unwrap();
            let all = |row: &Row<'_>| Ok(row.get::<_, i64>("log")? == row.get::<_, i64>("checkpointed")?);
            other.query_row("PRAGMA wal_checkpoint", [], all).unwrap()
        };
        assert_eq!(read(), 0);
        assert!(!commit_and_write_back(), "the transaction stays open for the next read");
        assert_eq!(read(), 1);
        assert!(commit_and_write_back());
        assert_eq!([read(), read()], [2, 2]);
        assert!(!commit_and_write_back(), "the second read's transaction stays open");
    }

    #[test]
    fn long_read_does_not_delay_a_checkpoint() {
        let connect = || Ok(Connection::open_in_memory()?);
        let wal_index = Arc::new(WalIndex::unchanging());
        let in_use = Arc::new(FolderLock(std::fs::File::open(".").unwrap()));
        let options = Options { readers: 2, ..Options::default() };
        let readers = Readers::open(&options, true, connect, wal_index, in_use).unwrap();
        thread::scope(|scope| {
            let ((reading, has_begun), (end, ended)) = (mpsc::channel(), mpsc::channel());
            let readers = &readers;
            let long = scope.spawn(move || {
                readers.read(true, |_| {
                    reading.send(()).unwrap();
                    ended.recv().unwrap();
                    Ok::<_, Error>(())
                })
            });
            has_begun.recv().unwrap();
            assert_eq!(readers.in_use(), 1);
            assert!(readers.without_kept(Duration::from_millis(5), || true), "done during a read");
            end.send(()).unwrap();
            long.join().unwrap().unwrap();
        });
    }
}
