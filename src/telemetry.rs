//! The log: on stderr, as text on a terminal, as JSON lines otherwise.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{LogFormat, LogLevel};

/// From the quietest to the one that says most.
const LEVELS: [LevelFilter; 5] =
    [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];

static LEVEL: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the log of this process.
pub fn start(level: LogLevel, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(LEVELS[level as usize]);
    let is_terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(is_terminal);
    let is_json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let lines = if is_json { lines.with_ansi(false).json().flatten_event(true).boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(filter).with(Broker).with(lines).init();
    // There is one log in a process.
    let _ = LEVEL.set(handle);
}

/// Leaves out what the broker's client says of each attempt to connect, below level debug: the relay says once that messages
/// wait, and why.
struct Broker;

impl<S: Subscriber> Layer<S> for Broker {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() >= Level::DEBUG || !metadata.target().starts_with("async_nats")
    }
}

/// Which way to go from the level there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    More,
    Less,
}

/// Logs one level more or less from now on. Says which, in a line that the new level lets through.
pub fn change_level(step: Step) {
    let Some(handle) = LEVEL.get() else { return };
    let now = LEVELS.iter().position(|level| Some(*level) == handle.clone_current()).unwrap_or(2);
    let next = match step {
        Step::More => (now + 1).min(LEVELS.len() - 1),
        Step::Less => now.saturating_sub(1),
    };
    // Fails only where the log is gone.
    let _ = handle.modify(|level| *level = LEVELS[next]);
    let log_level = LEVELS[next];
    match next {
        0 => tracing::error!(%log_level, "the log's level was changed"),
        1 => tracing::warn!(%log_level, "the log's level was changed"),
        _ => tracing::info!(%log_level, "the log's level was changed"),
    }
}
