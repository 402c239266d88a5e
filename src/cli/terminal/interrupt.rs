//! SIGINT and SIGTERM in commands that write files or the database. The command cleans up, reports what was written, and
//! exits with status 128 plus the signal's number, like a shell.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Number of the signal received. 0 if there was none.
static RECEIVED: AtomicU8 = AtomicU8::new(0);

/// Starts to catch both signals. The command polls [`is_received`]; a second signal ends the process at once.
pub fn catch() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    let wait = async move {
        loop {
            let number = tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
            };
            if RECEIVED.swap(number, Ordering::Relaxed) != 0 {
                std::process::exit(128 + i32::from(number));
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}

/// Makes writes beyond the limit of a file's size (`ulimit -f`) fail, as on a full disk. SIGXFSZ would end the process.
pub fn catch_file_size() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    // The handler stays when the listener is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
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
