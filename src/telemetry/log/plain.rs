//! The log of one-shot commands: `error: …` and `warning: …`, without times. It is the same on a terminal and in a
//! script.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::stderr::Stderr;
use super::{LEVELS, LogLevel};

/// Starts the log of a one-shot command.
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
