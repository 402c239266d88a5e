//! The log: on stderr, as text on a terminal, as JSON lines otherwise.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;

use crate::config::LogLevel;

/// Starts the log of this process.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    if std::io::stderr().is_terminal() {
        log.with_ansi(true).init();
    } else {
        log.json().flatten_event(true).with_ansi(false).init();
    }
}
