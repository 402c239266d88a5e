//! The runtime that commands run on.

use std::time::Duration;
use std::{panic, process, thread};

use tokio::runtime::{Builder, Runtime};

use crate::domain::Timestamp;
use crate::runtime::clock::Clock;

/// Maximum time that the end of the process waits for blocking calls. A name server or mount that hangs may block them
/// forever.
pub const BLOCKED_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a future to completion, and shuts the runtime down.
pub fn block_on<T>(runtime: Runtime, future: impl Future<Output = T>) -> T {
    let output = runtime.block_on(future);
    // Dropping the runtime would wait for blocking calls without a limit.
    runtime.shutdown_timeout(BLOCKED_TIMEOUT);
    output
}

/// Builds a runtime with one worker per core, because short database reads run on the workers. With a single core, the
/// current-thread runtime is cheaper: it never tries to share work.
///
/// # Errors
///
/// Fails if the system clock is before 1970, because dates, ids and certificates cannot express such a time.
pub fn runtime() -> std::io::Result<Runtime> {
    let now = Clock::System.now();
    if now < Timestamp::from_milliseconds(0) {
        let why = format!("the system clock is set to {now}: correct it, then start again");
        return Err(std::io::Error::other(why));
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all();
    // tokio panics if the system allows no more threads. Unwinding would then wait forever for the threads started before.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|panic| {
        eprintln!("error: cannot start: {}", panic.payload_as_str().unwrap_or("a thread panicked"));
        process::exit(1);
    }));
    let runtime = builder.build();
    panic::set_hook(hook);
    runtime
}
