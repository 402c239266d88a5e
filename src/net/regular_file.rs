//! Reads files that may be named pipes, or on a mount that hangs.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

/// Maximum time to read a file when the process starts.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a file. Fails at once for a named pipe or another special file, on which a plain read might wait for ever.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Reads a file or named pipe when the process starts. Gives up after 5 s. Otherwise, a mount that hangs or a pipe without a
/// writer would keep the process from stopping on SIGTERM.
pub fn read_at_start(path: &Path) -> io::Result<Vec<u8>> {
    let file = path.to_owned();
    let late = || io::Error::other(format!("cannot be read within {START_TIMEOUT:?}: check its mount or pipe"));
    in_time(START_TIMEOUT, move || fs::read(file)).unwrap_or_else(|| Err(late()))
}

/// Runs `work` on a thread of its own. `None` if that takes longer than `limit`, or the system has no more threads.
pub fn in_time<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = mpsc::channel();
    thread::Builder::new().name("start".into()).spawn(move || done.send(work())).ok()?;
    result.recv_timeout(limit).ok()
}
