//! The locks of SQLite's files, as `sqlite3_io_methods` defines them.

use std::ffi::c_int;

use rusqlite::ffi;

/// The locks of files: the file, the holder and its level.
#[derive(Debug, Default)]
pub struct FileLocks(Vec<(usize, usize, c_int)>);

impl FileLocks {
    /// Raises the lock of `holder` to `level`. Returns false if another holder prevents it.
    pub fn lock(&mut self, file: usize, holder: usize, level: c_int) -> bool {
        let others = self.0.iter().filter(|(locked, by, _)| *locked == file && *by != holder);
        let highest = others.map(|(.., level)| *level).max().unwrap_or(ffi::SQLITE_LOCK_NONE);
        let done = match level {
            ffi::SQLITE_LOCK_SHARED => highest < ffi::SQLITE_LOCK_PENDING,
            ffi::SQLITE_LOCK_RESERVED => highest < ffi::SQLITE_LOCK_RESERVED,
            // Keeps new readers away until those that are there have left.
            _ if highest == ffi::SQLITE_LOCK_SHARED => {
                self.set(file, holder, ffi::SQLITE_LOCK_PENDING);
                false
            }
            _ => highest < ffi::SQLITE_LOCK_RESERVED,
        };
        if done {
            self.set(file, holder, level);
        }
        done
    }

    /// Lowers the lock of `holder` to `level`.
    pub fn unlock(&mut self, holder: usize, level: c_int) {
        for lock in self.0.iter_mut().filter(|(_, by, _)| *by == holder) {
            lock.2 = lock.2.min(level);
        }
        self.0.retain(|(.., level)| *level != ffi::SQLITE_LOCK_NONE);
    }

    pub fn unlock_all(&mut self, holder: usize) {
        self.unlock(holder, ffi::SQLITE_LOCK_NONE);
    }

    pub fn is_reserved(&self, file: usize) -> bool {
        self.0.iter().any(|(locked, _, level)| *locked == file && *level >= ffi::SQLITE_LOCK_RESERVED)
    }

    fn set(&mut self, file: usize, holder: usize, level: c_int) {
        match self.0.iter_mut().find(|(_, by, _)| *by == holder) {
            Some(lock) => lock.2 = lock.2.max(level),
            None => self.0.push((file, holder, level)),
        }
    }
}

/// The eight locks of the write-ahead log's index: the holder, its shared and its exclusive ones.
#[derive(Debug, Default)]
pub struct SharedLocks(Vec<(usize, u16, u16)>);

impl SharedLocks {
    /// Takes the locks of `mask`. Returns false if another holder prevents it.
    pub fn lock(&mut self, holder: usize, mask: u16, is_exclusive: bool) -> bool {
        let prevents = |(by, shared, exclusive): &(usize, u16, u16)| {
            *by != holder && (exclusive & mask != 0 || is_exclusive && shared & mask != 0)
        };
        if self.0.iter().any(prevents) {
            return false;
        }
        let own = self.0.iter().position(|(by, ..)| *by == holder).unwrap_or_else(|| {
            self.0.push((holder, 0, 0));
            self.0.len() - 1
        });
        let (_, shared, exclusive) = &mut self.0[own];
        *(if is_exclusive { exclusive } else { shared }) |= mask;
        true
    }

    pub fn unlock(&mut self, holder: usize, mask: u16) {
        for (by, shared, exclusive) in &mut self.0 {
            if *by == holder {
                *shared &= !mask;
                *exclusive &= !mask;
            }
        }
    }

    pub fn unlock_all(&mut self, holder: usize) {
        self.0.retain(|(by, ..)| *by != holder);
    }
}
