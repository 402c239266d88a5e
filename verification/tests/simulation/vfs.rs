//! Makes SQLite use the simulated disk, and the process the simulated random numbers.
//!
//! The only module with `unsafe`, because both are C interfaces. SQLite keeps these promises of sqlite.org/c3ref/vfs.html,
//! on which every SAFETY comment relies: a file that is passed to a method was initialized by `open` and not yet closed,
//! names are NUL-terminated, buffers have the stated length, and pointers for results can be written.

#![expect(unsafe_code, reason = "SQLite's file systems and the libc's getrandom are C interfaces")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::Once;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::disk;

/// An open file, in memory that SQLite allocates.
#[repr(C)]
struct Opened {
    base: sqlite3_file,
    handle: usize,
}

const METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

static IO_METHODS: sqlite3_io_methods = METHODS;

/// Makes the simulated disk of each thread SQLite's default, and lets SQLite draw new random numbers.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<Opened>() as c_int,
            mxPathname: 512,
            pNext: ptr::null_mut(),
            zName: c"simulation".as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: None,
            xGetLastError: Some(get_last_error),
            xCurrentTimeInt64: Some(current_time),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        // SAFETY: SQLite keeps the pointer, and the memory is never freed.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1) };
        assert_eq!(registered, ffi::SQLITE_OK);
    });
    // SAFETY: without a buffer, this resets the generator, whose next number is made from `randomness`.
    unsafe { ffi::sqlite3_randomness(0, ptr::null_mut()) };
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let opened: *mut Opened = file.cast();
    // SAFETY: SQLite allocates `szOsFile` bytes, aligned, for the file. Without methods, it is not closed.
    unsafe { (*opened).base.pMethods = ptr::null() };
    // SAFETY: a name is a string or null.
    let name = (!name.is_null()).then(|| unsafe { base_name(name) });
    match disk::with(|disk| disk.open(name.as_deref(), flags)) {
        Ok(handle) => {
            // SAFETY: as above.
            unsafe { opened.write(Opened { base: sqlite3_file { pMethods: &raw const IO_METHODS }, handle }) };
            if !out_flags.is_null() {
                // SAFETY: a result that is not null can be written.
                unsafe { *out_flags = flags };
            }
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: a name is a string.
    let name = unsafe { base_name(name) };
    code(disk::with(|disk| disk.delete(&name, sync_dir != 0)))
}

unsafe extern "C" fn access(_: *mut sqlite3_vfs, name: *const c_char, flags: c_int, result: *mut c_int) -> c_int {
    // SAFETY: a name is a string.
    let name = unsafe { base_name(name) };
    let has_content = disk::with(|disk| disk.has_content(&name));
    // SQLite asks for the right to write only of the folder for temporary files.
    let is_folder = flags == ffi::SQLITE_ACCESS_READWRITE;
    // SAFETY: the result can be written.
    unsafe { *result = c_int::from(has_content || is_folder) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(_: *mut sqlite3_vfs, name: *const c_char, length: c_int, out: *mut c_char) -> c_int {
    // SAFETY: a name is a string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > length as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: the buffer has the stated length.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), name.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    // SAFETY: the buffer has the stated length.
    disk::with(|disk| disk.fill(unsafe { slice::from_raw_parts_mut(out.cast(), length as usize) }));
    length
}

/// Does not wait, because no other process runs meanwhile.
unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn get_last_error(_: *mut sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}

/// 2026-11-20 in milliseconds since the Julian epoch. SQLite has no time before that epoch.
const TIME: sqlite3_int64 = 210_866_760_000_000 + 1_795_167_000_000;

unsafe extern "C" fn current_time(_: *mut sqlite3_vfs, result: *mut sqlite3_int64) -> c_int {
    // SAFETY: the result can be written.
    unsafe { *result = TIME };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    disk::with(|disk| disk.close(handle(file)));
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, out: *mut c_void, length: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: the buffer has the stated length, and may hold anything.
    unsafe { ptr::write_bytes(out.cast::<u8>(), 0, length as usize) };
    // SAFETY: as above, and it is initialized now.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), length as usize) };
    match disk::with(|disk| disk.read(handle(file), offset as u64, out)) {
        Ok(read) if read == length as usize => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(code) => code,
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: the buffer has the stated length.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length as usize) };
    code(disk::with(|disk| disk.write(handle(file), offset as u64, bytes)))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: sqlite3_int64) -> c_int {
    code(disk::with(|disk| disk.truncate(handle(file), length as u64)))
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    code(disk::with(|disk| disk.sync(handle(file))))
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, result: *mut sqlite3_int64) -> c_int {
    match disk::with(|disk| disk.size(handle(file))) {
        Ok(size) => {
            // SAFETY: the result can be written.
            unsafe { *result = size as sqlite3_int64 };
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    code(disk::with(|disk| disk.lock(handle(file), level)))
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    disk::with(|disk| disk.unlock(handle(file), level));
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: the result can be written.
    unsafe { *result = c_int::from(disk::with(|disk| disk.is_reserved(handle(file)))) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4_096
}

/// As on Linux: a write that a power loss interrupts leaves the bytes beside it alone.
unsafe extern "C" fn device_characteristics(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// The memory that the connections to the database share, in the file that the store maps.
struct SharedMemory {
    file: File,
    path: PathBuf,
    regions: Vec<(*mut c_void, usize)>,
    /// The handles that use it.
    users: Vec<usize>,
}

thread_local!(static SHARED: RefCell<Option<SharedMemory>> = const { RefCell::new(None) });

impl SharedMemory {
    fn create() -> Self {
        let path = disk::with(|disk| disk.shared_memory_path());
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        Self { file, path, regions: Vec::new(), users: Vec::new() }
    }

    fn add_region(&mut self, size: usize) {
        let offset = self.regions.len() * size;
        self.file.set_len((offset + size) as u64).unwrap();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice, aliases nothing.
        let region = unsafe { mmap(ptr::null_mut(), size, access, flags, &self.file, offset as u64) };
        self.regions.push((region.unwrap(), size));
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        for (region, size) in &self.regions {
            // SAFETY: `add_region` mapped it, and its last user has unmapped it.
            unsafe { munmap(*region, *size) }.unwrap();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    result: *mut *mut c_void,
) -> c_int {
    let (handle, region) = (handle(file), region as usize);
    // SAFETY: the result can be written.
    unsafe { *result = ptr::null_mut() };
    SHARED.with_borrow_mut(|shared| {
        let shared = shared.get_or_insert_with(SharedMemory::create);
        if !shared.users.contains(&handle) {
            shared.users.push(handle);
        }
        while shared.regions.len() <= region {
            if extend == 0 {
                return ffi::SQLITE_OK;
            }
            if let Err(code) = disk::with(|disk| disk.grow_shared_memory(handle)) {
                return code;
            }
            shared.add_region(size as usize);
        }
        // SAFETY: as above.
        unsafe { *result = shared.regions[region].0 };
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    let mask = ((1_u16 << count) - 1) << first;
    let handle = handle(file);
    disk::with(|disk| {
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            disk.unlock_shared_memory(handle, mask);
            return ffi::SQLITE_OK;
        }
        code(disk.lock_shared_memory(handle, mask, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0))
    })
}

unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, _: c_int) -> c_int {
    let handle = handle(file);
    disk::with(|disk| disk.unlock_shared_memory(handle, u16::MAX));
    SHARED.with_borrow_mut(|shared| {
        if let Some(memory) = shared {
            memory.users.retain(|user| *user != handle);
            // The next process finds no index, as one that is the first to open a database clears it.
            if memory.users.is_empty() {
                *shared = None;
            }
        }
    });
    ffi::SQLITE_OK
}

fn handle(file: *mut sqlite3_file) -> usize {
    // SAFETY: `open` has initialized every file that SQLite passes to a method.
    unsafe { (*file.cast::<Opened>()).handle }
}

/// Returns the last part of a path.
///
/// # Safety
/// `name` is NUL-terminated.
unsafe fn base_name(name: *const c_char) -> String {
    // SAFETY: see above.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("names of tests are UTF-8");
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

fn code(result: disk::Result<()>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

thread_local!(static RANDOM: Cell<Option<u64>> = const { Cell::new(None) });

/// Seeds the random bytes of this thread's operating system: those of keys, ids, delays and hash tables.
pub fn seed_random_bytes(seed: u64) {
    RANDOM.set(Some(seed));
}

/// Stands in for the libc's function of the same name, in all code of this program.
///
/// # Safety
/// `buffer` has `length` bytes that can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _: c_uint) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: see above; zeroing makes them initialized.
    let bytes = unsafe {
        ptr::write_bytes(buffer.cast::<u8>(), 0, length);
        slice::from_raw_parts_mut(buffer.cast::<u8>(), length)
    };
    match RANDOM.try_with(Cell::get).ok().flatten() {
        Some(state) => {
            let mut random = testkit::Random::new(state);
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
            }
            RANDOM.set(Some(random.next()));
        }
        // A thread without a simulation: the test's own.
        None => {
            use std::io::Read;
            File::open("/dev/urandom").and_then(|mut source| source.read_exact(bytes)).expect("random bytes");
        }
    }
    length as isize
}
