//! Notices that the process at the other end of stdin has ended.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

use super::supervisor::Supervisor;

/// Stops the service when stdin is hung up, if it is a pipe or socket that is open now. Never reads it.
pub fn watch(supervisor: Arc<Supervisor>) -> io::Result<()> {
    let stdin = io::stdin();
    // Node.js passes a socket where other languages pass a pipe.
    let is_pipe = matches!(FileType::from_raw_mode(fstat(&stdin)?.st_mode), FileType::Fifo | FileType::Socket);
    if is_pipe && !is_hung_up(&stdin, Some(&Timespec::default()))? {
        thread::Builder::new().name("stdin".into()).spawn(move || {
            // A stdin that cannot be polled is treated as hung up, because the store must not outlive its test.
            while matches!(is_hung_up(io::stdin(), None), Ok(false)) {}
            supervisor.hang_up();
        })?;
    }
    Ok(())
}

/// Waits until all writers have closed their end, at most `limit`.
fn is_hung_up(stdin: impl AsFd, limit: Option<&Timespec>) -> io::Result<bool> {
    // Data does not end the wait, because only a hang-up is asked for.
    let mut polled = [PollFd::new(&stdin, PollFlags::RDHUP)];
    rustix::io::retry_on_intr(|| poll(&mut polled, limit))?;
    Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR))
}
