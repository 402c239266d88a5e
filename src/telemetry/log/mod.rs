//! The log, on stderr. Services log text on a terminal and JSON lines otherwise; one-shot commands log plain text.

mod sampler;
mod stderr;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::{fmt, thread};

use clap::ValueEnum;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

pub use self::sampler::Sampler;
pub use self::stderr::{Flush, dropped_lines};
use self::stderr::{ServiceLog, Stderr, start_queue};

/// From least to most verbose.
const LEVELS: [LevelFilter; 5] =
    [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];

static LEVEL: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();

/// True if the service logs JSON lines. Unset in other commands.
pub static IS_JSON: OnceLock<bool> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

/// Starts the log of this process.
pub fn start(level: LogLevel, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(LEVELS[level as usize]);
    let is_terminal = io::stderr().is_terminal();
    // https://no-color.org
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let takes_colours = !variable("TERM").is_empty() && variable("TERM") != "dumb" && variable("CLICOLOR") != "0";
    let colours = is_terminal && takes_colours && variable("NO_COLOR").is_empty();
    let lines = tracing_subscriber::fmt::layer().with_writer(ServiceLog::new()).with_target(false).with_ansi(colours);
    let is_json = *IS_JSON.get_or_init(|| format == LogFormat::Json || format == LogFormat::Auto && !is_terminal);
    let lines = if is_json { lines.with_ansi(false).json().flatten_event(true).boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Fails if the log was started before.
    let _ = LEVEL.set(handle);
}

/// Makes logging non-blocking. If the reader of stderr stalls, lines are dropped and no request waits. Dropping the
/// guard writes the last lines. Fails if the thread that writes cannot start.
pub fn never_block() -> io::Result<Flush> {
    let flush = start_queue()?;
    // The default hook writes to stderr directly, so it may block.
    panic::set_hook(Box::new(log_panic));
    Ok(flush)
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    // Captured only if `RUST_BACKTRACE` asks for it.
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        panic = panic.payload_as_str().unwrap_or("of unknown cause"),
        thread = thread::current().name(),
        location = panic.location().map(tracing::field::display),
        backtrace = is_captured.then(|| tracing::field::display(&backtrace)),
        "thread panicked"
    );
}

/// Writes text to stderr that is not a log line.
pub fn write(text: &str) {
    // `Stderr` never fails.
    let _ = Stderr::default().write_all(text.as_bytes());
}

/// Logs more by this number of levels, or less if it is negative, and logs the new level.
pub fn change_level(by: isize) {
    let Some(handle) = LEVEL.get() else { return };
    let now = LEVELS.iter().position(|level| Some(*level) == handle.clone_current()).unwrap_or(2);
    let next = now.saturating_add_signed(by).min(LEVELS.len() - 1);
    // Fails only if the log has ended.
    let _ = handle.modify(|level| *level = LEVELS[next]);
    let log_level = LEVELS[next];
    match next {
        0 => tracing::error!(%log_level, "log level changed"),
        1 => tracing::warn!(%log_level, "log level changed"),
        _ => tracing::info!(%log_level, "log level changed"),
    }
}

/// Starts the log of a one-shot command: `error: …` and `warning: …`, without times, the same on a terminal and in a script.
pub fn start_plain(level: LogLevel) {
    let lines = tracing_subscriber::fmt::layer().with_writer(Stderr::default).with_ansi(false).event_format(Plain);
    tracing_subscriber::registry().with(LEVELS[level as usize]).with(lines).init();
}

/// Returns the prefix of lines of this level.
pub fn label(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        Level::DEBUG => "debug: ",
        Level::TRACE => "trace: ",
    }
}

struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        to.write_str(label(*event.metadata().level()))?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn panic_is_a_line_of_the_log() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
        let default = panic::take_hook();
        panic::set_hook(Box::new(log_panic));

        let panicking = thread::Builder::new().name("fragile".into());
        let panicking =
            panicking.spawn(|| tracing::subscriber::with_default(subscriber, || panic!("{} are out", "animals")));
        let ended = panicking.unwrap().join();
        panic::set_hook(default);

        assert!(ended.is_err());
        let line: serde_json::Value = serde_json::from_slice(&lines.0.lock().unwrap()).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"ERROR".into(), &"thread panicked".into()));
        assert_eq!((&line["panic"], &line["thread"]), (&"animals are out".into(), &"fragile".into()));
        assert!(line["location"].as_str().unwrap().starts_with("src/telemetry/log/mod.rs:"), "{line}");
    }
}
