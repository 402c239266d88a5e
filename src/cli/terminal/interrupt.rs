//! Signals of commands.

use std::fs;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use rustix::process::Signal;
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
pub use signal_hook::low_level::siginfo::Cause;

/// Number of the signal received. 0 if there was none.
static RECEIVED: AtomicU8 = AtomicU8::new(0);

/// Starts to catch SIGINT, SIGTERM and SIGHUP, for commands that write files or the database. The command polls
/// [`is_received`], cleans up, reports what was written, and exits with status 128 plus the signal's number, like a shell. A
/// second SIGINT or SIGTERM ends the process at once.
pub fn catch() -> io::Result<()> {
    listen([Signal::INT, Signal::TERM].into_iter().chain(not_ignored([Signal::HUP])), |signal, _| {
        let number = signal.as_raw() as u8;
        // A shell and the kernel each send SIGHUP when a terminal is closed.
        if RECEIVED.swap(number, Ordering::Relaxed) != 0 && signal != Signal::HUP {
            std::process::exit(128 + i32::from(number));
        }
    })
}

/// Leaves out signals that were ignored at the start, as SIGHUP by nohup. They stay ignored.
pub fn not_ignored(signals: impl IntoIterator<Item = Signal>) -> impl Iterator<Item = Signal> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    signals.into_iter().filter(move |kind| mask.unwrap_or(0) >> (kind.as_raw() - 1) & 1 == 0)
}

/// Catches these signals, and calls `receive` with each that arrives and what sent it, on a thread of its own.
pub fn listen(
    signals: impl IntoIterator<Item = Signal>,
    receive: impl Fn(Signal, Cause) + Send + 'static,
) -> io::Result<()> {
    let mut received = SignalsInfo::<WithOrigin>::new(signals.into_iter().map(Signal::as_raw))?;
    let receive_all = move || {
        for origin in received.forever() {
            if let Some(signal) = Signal::from_named_raw(origin.signal) {
                receive(signal, origin.cause);
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(receive_all)?;
    Ok(())
}

/// Makes writes beyond the limit of a file's size (`ulimit -f`) fail, as on a full disk. SIGXFSZ would end the process.
pub fn catch_file_size() -> io::Result<()> {
    flag::register(Signal::XFSZ.as_raw(), Arc::default()).map(drop)
}

/// Records a signal that was caught elsewhere.
pub fn record(number: u8) {
    RECEIVED.store(number, Ordering::Relaxed);
}

pub fn is_received() -> bool {
    RECEIVED.load(Ordering::Relaxed) != 0
}

/// Returns the exit status of a command that was interrupted. `None` if no signal was received.
pub fn exit_code() -> Option<ExitCode> {
    let number = RECEIVED.load(Ordering::Relaxed);
    (number != 0).then(|| ExitCode::from(128 + number))
}
