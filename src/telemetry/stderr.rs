//! Writes to stderr. While the service runs, a thread of its own does that, because a reader that stalls would block every
//! thread that logs.

use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::metrics::Counter;

/// Bytes that wait to be written. Lines beyond it are dropped.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Time for the last lines to be written before the process exits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Lines of this time are written together: waking the writer thread for each line would cost a request more than writing it.
const GATHER: Duration = Duration::from_millis(2);
/// Pause before a full, non-blocking descriptor is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

static QUEUE: Queue = Queue {
    is_used: AtomicBool::new(false),
    state: Mutex::new(State { waiting: Vec::new(), is_idle: false }),
    filled: Condvar::new(),
    drained: Condvar::new(),
    dropped: Counter::new(),
};

struct Queue {
    is_used: AtomicBool,
    state: Mutex<State>,
    /// Wakes the writer thread.
    filled: Condvar,
    /// Wakes a flush.
    drained: Condvar,
    /// Lines that were not written.
    dropped: Counter,
}

struct State {
    waiting: Vec<u8>,
    /// The writer thread has written everything and waits for more.
    is_idle: bool,
}

/// Writes whole lines: directly, or through the queue once there is one. Never fails, because there is nowhere to report it.
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if QUEUE.is_used.load(Ordering::Acquire) {
            QUEUE.push(line);
        } else {
            let _ = io::stderr().write_all(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the writer thread. From then on, writing never blocks.
pub fn start_queue() -> io::Result<Flush> {
    thread::Builder::new().name("log".into()).spawn(|| QUEUE.run())?;
    QUEUE.is_used.store(true, Ordering::Release);
    Ok(Flush)
}

/// Lines dropped since the process started.
pub fn dropped_lines() -> u64 {
    QUEUE.dropped.get()
}

/// Waits up to 3 s for the last lines to be written when dropped.
#[must_use]
pub struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        let is_busy = |state: &mut State| !state.is_idle || !state.waiting.is_empty();
        let _ = QUEUE.drained.wait_timeout_while(QUEUE.lock(), FLUSH_TIMEOUT, is_busy);
    }
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > QUEUE_BYTES {
            self.dropped.increment();
            return;
        }
        state.waiting.extend_from_slice(line);
        let is_idle = mem::take(&mut state.is_idle);
        drop(state);
        if is_idle {
            self.filled.notify_one();
        }
    }

    /// Writes what is pushed. Never returns.
    fn run(&self) {
        let mut lines = Vec::new();
        let (mut is_read, mut reported) = (true, 0);
        loop {
            // While nothing can be written, a report would only be another line to drop.
            let is_unreported = |dropped| is_read && dropped > reported;
            let mut state = self.lock();
            while state.waiting.is_empty() && !is_unreported(self.dropped.get()) {
                state.is_idle = true;
                self.drained.notify_all();
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_idle = false;
            }
            drop(state);
            thread::sleep(GATHER);
            let mut state = self.lock();
            mem::swap(&mut state.waiting, &mut lines);
            let dropped = self.dropped.get();
            drop(state);
            if is_unreported(dropped) {
                // The queue was emptied a moment ago, so there is room for it, after the lines that filled it.
                tracing::warn!(lines = dropped - reported, "log lines dropped");
                reported = dropped;
            }
            let written = write_all(&lines);
            is_read = written.is_ok();
            if let Err(rest) = written {
                self.dropped.add(rest.iter().filter(|byte| **byte == b'\n').count() as u64);
            }
            lines.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes without the lock of [`io::stderr`], which other writers would wait for while this one is blocked. Returns what could
/// not be written.
fn write_all(mut bytes: &[u8]) -> Result<(), &[u8]> {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(&stderr, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process that shares the descriptor made it non-blocking.
            Err(Errno::AGAIN) => thread::sleep(RETRY_PAUSE),
            // The reader closed its end, or the disk of the file is full.
            Err(_) => return Err(bytes),
        }
    }
    Ok(())
}
