//! Writes to stderr. In a service a dedicated thread writes, because a stalled reader would block every thread that logs.

use std::borrow::Cow;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::redaction::without_keys;
use crate::telemetry::metrics::Counter;

/// Maximum size of the queue. Lines that do not fit are dropped.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum time to wait for the last lines before the process exits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time during which lines are gathered into one write. Waking the writer thread for each line would cost a request
/// more than writing the line.
const GATHER: Duration = Duration::from_millis(2);
/// Pause before a write to a full, non-blocking descriptor is retried.
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
    /// Notified when there are lines to write.
    filled: Condvar,
    /// Notified when all lines are written.
    drained: Condvar,
    /// Lines that were not written.
    dropped: Counter,
}

struct State {
    waiting: Vec<u8>,
    /// True while the writer thread waits, with everything written.
    is_idle: bool,
}

/// Writes whole lines: directly, or through the queue once that is started. Never fails, because errors cannot be
/// reported anywhere.
#[derive(Default)]
pub struct Stderr {
    /// The line's priority, as in "<3>", for the journal of systemd (sd-daemon(3)).
    priority: Option<u8>,
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let line_without_keys = without_keys(line);
        let mut shown = escape_controls(&line_without_keys);
        if let Some(priority) = self.priority {
            shown.to_mut().splice(..0, format!("<{priority}>").into_bytes());
        }
        if QUEUE.is_used.load(Ordering::Acquire) {
            QUEUE.push(&shown);
        } else {
            let _ = io::stderr().write_all(&shown);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of a service. Its lines have priorities if stderr leads to the journal of systemd.
pub struct ServiceLog {
    has_priorities: bool,
}

impl ServiceLog {
    pub fn new() -> Self {
        // systemd.exec(5): the device and inode of the stream.
        let stream = rustix::fs::fstat(io::stderr()).map(|stream| format!("{}:{}", stream.st_dev, stream.st_ino));
        let journal = std::env::var("JOURNAL_STREAM");
        Self { has_priorities: journal.is_ok_and(|journal| stream.is_ok_and(|stream| stream == journal)) }
    }
}

impl MakeWriter<'_> for ServiceLog {
    type Writer = Stderr;

    fn make_writer(&self) -> Stderr {
        Stderr::default()
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Stderr {
        let priority = match *event.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        Stderr { priority: self.has_priorities.then_some(priority) }
    }
}

/// Escapes DEL and the control characters from U+0080 to U+009F as JSON does others, because U+009B begins commands to some
/// terminals, and a client may send it in a path. JSON does not escape them by itself.
fn escape_controls(line: &[u8]) -> Cow<'_, [u8]> {
    // In UTF-8, 0xC2 begins the characters from U+0080 to U+00BF.
    if !line.iter().any(|byte| matches!(byte, 0x7f | 0xc2)) {
        return line.into();
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    for character in String::from_utf8_lossy(line).chars() {
        match character {
            '\u{7f}'..='\u{9f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => escaped.push(other),
        }
    }
    escaped.into_bytes().into()
}

/// Starts the writer thread. From then on, writing never blocks.
pub fn start_queue() -> io::Result<Flush> {
    thread::Builder::new().name("log".into()).spawn(|| QUEUE.run())?;
    QUEUE.is_used.store(true, Ordering::Release);
    Ok(Flush)
}

/// Returns the number of lines dropped since the process started.
pub fn dropped_lines() -> u64 {
    QUEUE.dropped.get()
}

/// A guard that waits on drop until the last lines are written, at most 3 s.
#[must_use]
pub struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        let is_busy = |state: &mut State| !state.is_idle || !state.waiting.is_empty();
        QUEUE.drained.wait_while_for(&mut QUEUE.state.lock(), is_busy, FLUSH_TIMEOUT);
    }
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
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

    /// Writes queued lines. Never returns.
    fn run(&self) {
        let mut lines = Vec::new();
        let (mut is_read, mut reported) = (true, 0);
        loop {
            // While writes fail, a report would be dropped too.
            let is_unreported = |dropped| is_read && dropped > reported;
            let mut state = self.state.lock();
            while state.waiting.is_empty() && !is_unreported(self.dropped.get()) {
                state.is_idle = true;
                self.drained.notify_all();
                self.filled.wait(&mut state);
                state.is_idle = false;
            }
            drop(state);
            thread::sleep(GATHER);
            let mut state = self.state.lock();
            mem::swap(&mut state.waiting, &mut lines);
            let dropped = self.dropped.get();
            drop(state);
            if is_unreported(dropped) {
                // The queue has just been emptied, so the report fits. It follows the lines that had filled the queue.
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
}

/// Writes without the lock of [`io::stderr`], because other writers would wait for the lock while this write is blocked.
/// `Err` has the bytes that could not be written.
fn write_all(mut bytes: &[u8]) -> Result<(), &[u8]> {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(&stderr, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process that shares the descriptor made it non-blocking.
            Err(Errno::AGAIN) => thread::sleep(RETRY_PAUSE),
            // For example, the reader closed its end, or the disk is full.
            Err(_) => return Err(bytes),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_beyond_ascii_are_escaped() {
        for (line, escaped) in [
            ("a line\n", "a line\n"),
            ("GET /\u{9b}31m\n", "GET /\\u009b31m\n"),
            ("\u{80}\u{9f}\u{7f}", "\\u0080\\u009f\\u007f"),
            ("é\u{a0}\u{c2}…🦊", "é\u{a0}\u{c2}…🦊"),
        ] {
            assert_eq!(String::from_utf8_lossy(&escape_controls(line.as_bytes())), escaped);
        }
        assert_eq!(*escape_controls(b"\xc2"), *"\u{fffd}".as_bytes());
    }
}
