//! Reads a file that another program may have replaced by a named pipe.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a file. Fails at once for a named pipe or another special file, on which a plain read might wait for ever.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}
