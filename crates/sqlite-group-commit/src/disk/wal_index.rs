//! Detects commits of all processes by reading 100 bytes of shared memory.
//!
//! The only module with `unsafe`. A `pread` of the same bytes would cost a system call per read of the database.

#![expect(unsafe_code, reason = "memory that other processes write cannot be mapped and read without")]

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::folder::{beside, unavailable};
use crate::{Error, Result};

/// Size of one copy of the WAL-index header, in 32-bit words.
const HEAD_WORDS: usize = 12;

/// The mapped memory, in bytes and in 32-bit words: both copies of the header, and the number of pages that were written back.
const MAPPED_BYTES: usize = MAPPED_WORDS * 4;
const MAPPED_WORDS: usize = 2 * HEAD_WORDS + 1;

/// The shared-memory file beside the database (`-shm`), whose header SQLite rewrites at every commit.
///
/// Closing any descriptor of that file drops this process's locks on it, because POSIX advisory locks belong to the
/// process. It must therefore close after every connection. The owners of [`crate::Database`]'s connections share it.
#[derive(Debug)]
pub struct WalIndex {
    head: *const [AtomicU32; MAPPED_WORDS],
    /// `None` if there is no such file because nobody writes. The header is then a constant.
    file: Option<File>,
}

// SAFETY: the pointer is to memory that lives as long as the value, and is only read, by atomics.
unsafe impl Send for WalIndex {}
// SAFETY: as above.
unsafe impl Sync for WalIndex {}

/// State of the database that reads see. Equal versions mean that no process has committed in between.
///
/// These are the 48 bytes of the WAL-index header (sqlite.org/walformat.html, section 2.1). SQLite writes them after
/// the WAL's sync and before `COMMIT` returns, so acknowledged commits are always visible. A version read in the middle of a
/// write differs from the one before and, by its checksum, from the one after. It counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub(crate) [u32; HEAD_WORDS]);

/// The last commit of the WAL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Number of its pages.
    pub frames: u32,
    /// The salts of the WAL, as its header has them.
    pub salts: [u32; 2],
    /// The checksum of the last page.
    pub checksum: [u32; 2],
}

impl Version {
    /// Number of pages in the WAL (`mxFrame`).
    pub(crate) const fn wal_pages(&self) -> u32 {
        self.0[4]
    }

    /// Returns whether exactly one transaction was committed since `earlier`. SQLite counts them (`iChange`).
    pub(crate) const fn is_next_of(&self, earlier: &Self) -> bool {
        self.0[2] == earlier.0[2].wrapping_add(1)
    }
}

impl WalIndex {
    /// Opens the file of a database. A connection must have it open in WAL mode for longer than this value lives.
    pub fn open(database: &Path) -> Result<Self> {
        let path = beside(database, "-shm");
        let file = File::open(&path).map_err(unavailable(&path))?;
        // The header must lie within the file, because memory beyond its end cannot be read.
        if file.metadata().map_err(unavailable(&path))?.len() < MAPPED_BYTES as u64 {
            return Err(Error::Unavailable(format!("{}: too short", path.display())));
        }
        // SAFETY: a new mapping, at an address of the kernel's choice, aliases nothing of ours.
        let head = unsafe { mmap(std::ptr::null_mut(), MAPPED_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let head = head.map_err(|error| unavailable(&path)(error.into()))?;
        Ok(Self { head: head.cast(), file: Some(file) })
    }

    /// Header of a database that nobody writes to. Its version never changes.
    pub const fn unchanging() -> Self {
        static HEAD: [AtomicU32; MAPPED_WORDS] = [const { AtomicU32::new(0) }; MAPPED_WORDS];
        Self { head: &raw const HEAD, file: None }
    }

    #[inline]
    pub fn version(&self) -> Version {
        let head = self.head();
        let version = Version(std::array::from_fn(|word| head[word].load(Ordering::Relaxed)));
        // Later reads of the database are at least as new as the version.
        fence(Ordering::Acquire);
        version
    }

    /// Returns whether the database file has all pages of the WAL, so that SQLite may restart it (`nBackfill`).
    pub fn is_written_back(&self) -> bool {
        self.version().wal_pages() == self.head()[2 * HEAD_WORDS].load(Ordering::Relaxed)
    }

    /// Returns the last commit. The salts are in memory as the WAL has them, the rest as numbers.
    pub fn log_end(&self) -> LogEnd {
        let Version(words) = self.version();
        let salts = [words[8], words[9]].map(|salt| u32::from_be_bytes(salt.to_ne_bytes()));
        LogEnd { frames: words[4], salts, checksum: [words[6], words[7]] }
    }

    #[inline]
    fn head(&self) -> &[AtomicU32; MAPPED_WORDS] {
        // SAFETY: the mapping is page-aligned, as long as the array and lives as long as `self`. The constant lives for
        // ever. The file cannot become shorter under the mapping: SQLite cuts it only where no process has the database
        // open, and a connection of ours has. SQLite writes these words while they are read here, which atomics allow.
        unsafe { &*self.head }
    }
}

impl Drop for WalIndex {
    fn drop(&mut self) {
        if self.file.is_some() {
            // SAFETY: `open` mapped the memory, with this length, and it is reachable only through `self`.
            let _ = unsafe { munmap(self.head.cast_mut().cast(), MAPPED_BYTES) };
        }
    }
}
