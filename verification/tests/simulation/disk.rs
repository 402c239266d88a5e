//! A disk in memory, which fails as its seed decides, and forgets what was not synced when the power fails.
//!
//! SQLite reaches it through `vfs.rs`. It belongs to the thread of the simulation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::ffi;
use testkit::Random;

use crate::file::File;
use crate::lives::{Lives, ProcessId, Victim};
use crate::locks::{FileLocks, SharedLocks};
use crate::names::Names;
use crate::trace;

/// A result with SQLite's code of the error.
pub type Result<T> = std::result::Result<T, c_int>;

/// Rates of failure: one operation in this many fails, or none if it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub read: u64,
    pub write: u64,
    pub sync: u64,
    /// No space is left.
    pub full: bool,
}

/// Properties of the disk and its kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Character {
    /// Syncs report success without being done. The control of every promise about durability.
    pub lies: bool,
    /// After a failed sync, processes read what the disk has, and not what they wrote. Kernels differ in this.
    pub reverts_after_failed_sync: bool,
}

#[derive(Debug)]
pub struct Disk {
    pub faults: Faults,
    pub character: Character,
    /// The process that opens and deletes files now.
    pub running: ProcessId,
    /// A sync has failed in this step, so the files in the folder have the lengths of those that they stand for.
    pub shows_lengths: bool,
    random: Random,
    pub lives: Lives,
    files: Vec<File>,
    names: Names,
    handles: Vec<Option<Handle>>,
    locks: FileLocks,
    shared_locks: SharedLocks,
}

#[derive(Debug)]
struct Handle {
    file: usize,
    process: ProcessId,
    /// The first sync is also one of the folder, as that of a log that SQLite may have created.
    syncs_folder: bool,
    /// A sync of another handle has failed. As on Linux, the next sync of this one reports that, too.
    sync_failed: bool,
    /// A temporary file, whose name nobody knows.
    deletes_on_close: Option<String>,
}

thread_local!(static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) });

/// Runs `work` with the disk of this thread.
pub fn with<T>(work: impl FnOnce(&mut Disk) -> T) -> T {
    DISK.with_borrow_mut(|disk| work(disk.as_mut().expect("a simulation runs on this thread")))
}

/// Gives this thread a disk.
pub fn insert(disk: Disk) {
    DISK.set(Some(disk));
}

impl Disk {
    /// A disk with a file of each of these names and contents.
    pub fn new(random: Random, folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Self {
        Self {
            faults: Faults::default(),
            character: Character::default(),
            running: ProcessId(0),
            shows_lengths: false,
            random,
            lives: Lives::default(),
            names: Names::new(folder, files.keys().cloned().zip(0..).collect()),
            files: files.values().cloned().map(File::new).collect(),
            handles: Vec::new(),
            locks: FileLocks::default(),
            shared_locks: SharedLocks::default(),
        }
    }

    /// The contents of all files.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[file].content().to_vec())).collect()
    }

    pub fn has_file(&self, name: &str) -> bool {
        self.names.find(name).is_some()
    }

    /// Shows the files in the folder where the store looks at them.
    pub fn show_in_folder(&self) {
        self.names.show(|file| self.files[file].content());
    }

    fn show_failed_sync(&mut self) {
        self.show_in_folder();
        self.shows_lengths = true;
    }

    /// Truncates a file like the one that stands for it, which the store has cut after a failed sync.
    pub fn follow_truncation(&mut self, name: &str) {
        let Some(file) = self.names.find(name).filter(|_| self.shows_lengths) else { return };
        let length = fs::metadata(self.names.path(name)).unwrap().len();
        if length < self.files[file].content().len() as u64 {
            trace::note("truncate after a failed sync", file as u64, length);
            self.files[file].truncate(length);
        }
    }

    pub fn open(&mut self, name: Option<&str>, flags: c_int) -> Result<usize> {
        self.check_alive(self.running)?;
        let is_temporary = name.is_none();
        let name = name.map_or_else(|| format!("temporary-{}", self.files.len()), str::to_owned);
        let file = match self.names.find(&name) {
            Some(file) => file,
            // The store itself creates its database, in the folder.
            None if flags & ffi::SQLITE_OPEN_CREATE == 0 && !self.names.path(&name).exists() => {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            None => {
                self.may_change(self.running, ffi::SQLITE_CANTOPEN)?;
                self.files.push(File::new(Vec::new()));
                self.names.set(&name, Some(self.files.len() - 1));
                self.files.len() - 1
            }
        };
        let is_log = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
        let syncs_folder = is_log && flags & ffi::SQLITE_OPEN_CREATE != 0;
        let deletes_on_close = is_temporary.then_some(name);
        let handle = Some(Handle { file, process: self.running, syncs_folder, sync_failed: false, deletes_on_close });
        if let Some(free) = self.handles.iter().position(Option::is_none) {
            self.handles[free] = handle;
            return Ok(free);
        }
        self.handles.push(handle);
        Ok(self.handles.len() - 1)
    }

    pub fn close(&mut self, handle: usize) {
        self.locks.unlock_all(handle);
        let closed = self.handles[handle].take().expect("an open file");
        if let Some(name) = closed.deletes_on_close {
            self.names.set(&name, None);
        }
    }

    /// Reads at most as many bytes as `target` has, and returns how many there are.
    pub fn read(&mut self, handle: usize, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.check_alive(self.process(handle))?;
        if self.one_in(self.faults.read) {
            trace::note("read failed", handle as u64, offset);
            return Err(ffi::SQLITE_IOERR_READ);
        }
        let content = self.file(handle).content();
        let found = content.get(offset as usize..).unwrap_or_default();
        let length = found.len().min(target.len());
        target[..length].copy_from_slice(&found[..length]);
        Ok(length)
    }

    pub fn write(&mut self, handle: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        trace::note_bytes("write", handle as u64, offset, bytes);
        let process = self.process(handle);
        self.may_change(process, ffi::SQLITE_IOERR_WRITE)?;
        let grows = offset + bytes.len() as u64 > self.file(handle).content().len() as u64;
        let error = if self.faults.full && grows {
            Some(ffi::SQLITE_FULL)
        } else {
            self.one_in(self.faults.write).then_some(ffi::SQLITE_IOERR_WRITE)
        };
        // A part may have been written before the failure.
        let done = if error.is_some() { self.random.below(bytes.len() as u64 + 1) as usize } else { bytes.len() };
        self.file(handle).write(offset, &bytes[..done]);
        if error.is_some() {
            // The writer looks at what a failed commit has left.
            self.show_in_folder();
        }
        self.changed(process)?;
        error.map_or(Ok(()), Err)
    }

    pub fn truncate(&mut self, handle: usize, length: u64) -> Result<()> {
        trace::note("truncate", handle as u64, length);
        let process = self.process(handle);
        self.may_change(process, ffi::SQLITE_IOERR_TRUNCATE)?;
        if self.one_in(self.faults.write) {
            return Err(ffi::SQLITE_IOERR_TRUNCATE);
        }
        self.file(handle).truncate(length);
        self.changed(process)
    }

    pub fn sync(&mut self, handle: usize) -> Result<()> {
        trace::note("sync", handle as u64, 0);
        let process = self.process(handle);
        // The victim of a kill does not learn of a failed sync.
        self.may_change(process, ffi::SQLITE_IOERR)?;
        let file = self.handle(handle).file;
        if self.one_in(self.faults.sync) {
            trace::note("sync failed", handle as u64, 0);
            self.files[file].fail_sync(&mut self.random, self.character.reverts_after_failed_sync);
            self.show_failed_sync();
            let others = self.handles.iter_mut().enumerate().filter(|(number, _)| *number != handle);
            others.filter_map(|(_, other)| other.as_mut()).for_each(|other| other.sync_failed |= other.file == file);
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        let opened = self.handles[handle].as_mut().expect("an open file");
        if std::mem::take(&mut opened.sync_failed) {
            self.show_failed_sync();
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        if !self.character.lies {
            self.files[file].sync();
            let opened = self.handles[handle].as_mut().expect("an open file");
            if std::mem::take(&mut opened.syncs_folder) {
                self.names.sync();
            }
        }
        self.changed(process)
    }

    pub fn size(&mut self, handle: usize) -> Result<u64> {
        self.check_alive(self.process(handle))?;
        Ok(self.file(handle).content().len() as u64)
    }

    pub fn delete(&mut self, name: &str, syncs_folder: bool) -> Result<()> {
        trace::note_text("delete", name);
        self.may_change(self.running, ffi::SQLITE_IOERR_DELETE)?;
        if self.names.find(name).is_none() {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        self.names.set(name, None);
        if syncs_folder {
            self.names.sync();
        }
        self.changed(self.running)
    }

    /// Returns whether the file exists and has content.
    pub fn has_content(&self, name: &str) -> bool {
        self.names.find(name).is_some_and(|file| !self.files[file].content().is_empty())
    }

    pub fn lock(&mut self, handle: usize, level: c_int) -> Result<()> {
        self.check_alive(self.process(handle))?;
        let file = self.handle(handle).file;
        if self.locks.lock(file, handle, level) { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    pub fn unlock(&mut self, handle: usize, level: c_int) {
        self.locks.unlock(handle, level);
    }

    pub fn is_reserved(&mut self, handle: usize) -> bool {
        let file = self.handle(handle).file;
        self.locks.is_reserved(file)
    }

    pub fn lock_shared_memory(&mut self, handle: usize, mask: u16, is_exclusive: bool) -> Result<()> {
        self.check_alive(self.process(handle))?;
        if self.shared_locks.lock(handle, mask, is_exclusive) { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    /// Path of the file that holds the shared memory.
    pub fn shared_memory_path(&self) -> PathBuf {
        self.names.path("petstore.db-shm")
    }

    pub fn unlock_shared_memory(&mut self, handle: usize, mask: u16) {
        self.shared_locks.unlock(handle, mask);
    }

    /// Fails if no space is left for more shared memory.
    pub fn grow_shared_memory(&mut self, handle: usize) -> Result<()> {
        self.check_alive(self.process(handle))?;
        if self.faults.full { Err(ffi::SQLITE_IOERR_SHMSIZE) } else { Ok(()) }
    }

    /// Random bytes for SQLite.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Stops a process: none of its operations has an effect any more, and its locks are released.
    pub fn kill(&mut self, process: ProcessId) {
        self.lives.kill(process);
        self.release_locks(process);
    }

    pub fn is_dead(&self, process: ProcessId) -> bool {
        self.lives.is_dead(process)
    }

    /// Restores the power. Of the changes that were not synced, any may be lost.
    pub fn restore_power(&mut self) {
        assert!(self.handles.iter().all(Option::is_none), "no process outlives its machine");
        self.names.lose_power(&mut self.random);
        for file in &mut self.files {
            file.lose_power(&mut self.random);
        }
        self.lives.restore_power();
    }

    fn release_locks(&mut self, process: ProcessId) {
        for (number, handle) in self.handles.iter().enumerate() {
            if handle.as_ref().is_some_and(|handle| handle.process == process) {
                self.locks.unlock_all(number);
                self.shared_locks.unlock_all(number);
            }
        }
    }

    /// Fails if the process has stopped, or stops before this change.
    fn may_change(&mut self, process: ProcessId, error: c_int) -> Result<()> {
        self.check_alive(process)?;
        match self.lives.before_change(process, &mut self.random) {
            None => Ok(()),
            Some(victim) => {
                self.release_locks_of(victim);
                Err(error)
            }
        }
    }

    /// Fails if the process stops after this change.
    fn changed(&mut self, process: ProcessId) -> Result<()> {
        if let Some(victim) = self.lives.after_change(process) {
            self.release_locks_of(victim);
        }
        self.check_alive(process)
    }

    fn release_locks_of(&mut self, victim: Victim) {
        if let Victim::Process(process) = victim {
            self.release_locks(process);
        }
    }

    fn check_alive(&self, process: ProcessId) -> Result<()> {
        if self.is_dead(process) { Err(ffi::SQLITE_IOERR) } else { Ok(()) }
    }

    fn one_in(&mut self, rate: u64) -> bool {
        rate > 0 && self.random.below(rate) == 0
    }

    fn handle(&self, handle: usize) -> &Handle {
        self.handles[handle].as_ref().expect("an open file")
    }

    fn process(&self, handle: usize) -> ProcessId {
        self.handle(handle).process
    }

    fn file(&mut self, handle: usize) -> &mut File {
        let file = self.handle(handle).file;
        &mut self.files[file]
    }
}
