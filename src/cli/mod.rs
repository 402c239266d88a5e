//! The command line, with one module per command.

mod account;
mod backup;
mod completions;
mod config;
mod copy_to_postgres;
mod export;
mod formats;
mod healthcheck;
mod interrupt;
mod key;
mod messages;
mod migrate;
mod openapi;
mod passwords;
mod pets;
mod quickstart;
pub mod serve;
mod table;

use std::ffi::OsString;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::config::{Common, File, environment, settings};
use crate::domain::Deployment;
use crate::store::postgres::{self, Postgres};
use crate::store::sqlite::{self, Sqlite};
use crate::store::{Store, StoreError};
use crate::telemetry;

/// Text at the end of the help of every command with settings.
const SETTINGS: &str = "\
Each setting is also an environment variable and a key of the configuration file: --data-dir is PETSTORE_DATA_DIR and \
data-dir. Flags override environment variables, which override the file.";

/// Text at the end of the program's help.
const BEFORE: &str = "\
The settings of the database and the log, such as --data-dir, are accepted before and after the command.";

/// An animal store as an HTTP and JSON service
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = BEFORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Settings given before the command. After parsing, also those given after it.
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Command {
    Quickstart(quickstart::Quickstart),
    Serve(serve::Serve),
    /// Create, list and delete accounts, and set passwords
    #[command(subcommand)]
    Account(account::Account),
    /// Create, list, revoke and rotate API keys
    #[command(subcommand)]
    Key(key::Key),
    /// Import and export animals
    #[command(subcommand)]
    Pets(pets::Pets),
    /// List and export messages
    #[command(subcommand)]
    Messages(messages::Messages),
    Migrate(migrate::Migrate),
    Move(copy_to_postgres::Move),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Openapi(openapi::Openapi),
    /// Show the configuration
    #[command(subcommand)]
    Config(config::Config),
    Completions(completions::Completions),
    Healthcheck(healthcheck::Healthcheck),
}

/// Error message of a failed command.
#[derive(Debug)]
pub struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

pub type Outcome = Result<(), Failure>;

/// The parsed command line, with the source of each setting.
struct Parsed {
    cli: Cli,
    matches: ArgMatches,
    file: File,
}

/// Runs a command line. Exit status: 0 for success, 1 for a failure, 2 for wrong usage, 130 and 143 after SIGINT and
/// SIGTERM.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = match parse(&arguments.into_iter().collect::<Vec<_>>()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // A closed stdout or stderr leaves nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let Common { log_level, log_format, .. } = parsed.cli.common;
    let serves = matches!(parsed.cli.command, Command::Quickstart(_) | Command::Serve(_));
    if serves {
        telemetry::start(log_level, log_format);
    } else {
        telemetry::start_plain(log_level);
    }
    // Dropped last, because the outcome is logged too.
    let _flush = match serves.then(telemetry::never_block).transpose() {
        Ok(flush) => flush,
        Err(error) => {
            tell(Level::ERROR, &format!("cannot start the log thread: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if !matches!(parsed.cli.command, Command::Completions(_)) {
        environment::warnings(&command()).iter().for_each(|warning| tell(Level::WARN, warning));
    }
    match dispatch(parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            tell(Level::ERROR, &why);
            interrupt::exit_code().unwrap_or(ExitCode::FAILURE)
        }
    }
}

/// Parses the flags, then the flags and the environment, then both and the file. Each step adds one source, so that the
/// source of an error is known.
fn parse(arguments: &[OsString]) -> Result<Parsed, clap::Error> {
    let command = command();
    environment::ignored(command.clone()).try_get_matches_from(arguments).map_err(hide_passwords)?;
    let matches = command.clone().try_get_matches_from(arguments).map_err(|error| {
        let (name, why) = refused(error);
        invalid(&[environment::variable(&command, &name).unwrap_or(name), why].join(": "))
    })?;
    let Some(path) = matches.get_one::<PathBuf>("config") else {
        return Ok(Parsed { cli: Cli::from_arg_matches(&matches)?, matches, file: File::default() });
    };
    let shown = passwords::hidden(&path.display().to_string());
    let file = File::read(path, &command).map_err(|why| invalid(&format!("{shown}: {why}")))?;
    let matches = file.apply(command).try_get_matches_from(arguments).map_err(|error| {
        let (name, why) = refused(error);
        invalid(&[shown, name, why].join(": "))
    })?;
    Ok(Parsed { cli: Cli::from_arg_matches(&matches)?, matches, file })
}

fn invalid(why: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::InvalidValue, format!("{why}\n"))
}

/// Returns the name of the rejected setting and the reason. The reason does not contain the flag, because the value came
/// from the environment or the file.
fn refused(error: clap::Error) -> (String, String) {
    let error = hide_passwords(error);
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.as_str(),
        _ => "",
    };
    let name = flag.trim_start_matches('-').split([' ', '[', '=']).next().unwrap_or_default();
    let why = error.to_string();
    let end = why.find("\n\nFor more").unwrap_or(why.len());
    let why = why[..end].trim_start_matches("error: ").trim_end().replace(&format!(" for '{flag}'"), "");
    (name.to_owned(), why)
}

/// Hides passwords in the parts of the command line that `error` quotes.
fn hide_passwords(mut error: clap::Error) -> clap::Error {
    let takes_email =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.contains("<EMAIL>"));
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue] {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        let hidden = match text.rsplit_once('@') {
            // A URL without its scheme, such as `password@host`.
            Some((_, host)) if kind == ContextKind::InvalidValue && !takes_email && !text.contains("://") => {
                format!("[hidden]@{host}")
            }
            _ => passwords::hidden(text),
        };
        error.insert(kind, ContextValue::String(hidden));
    }
    error
}

/// Returns the definition of the command line, for completions and the manual.
pub fn command() -> clap::Command {
    // On the program itself, the settings are hidden and ignore the environment: their commands show and read them.
    add_settings_help(Cli::command().mut_args(|arg| arg.hide(true).env(Resettable::Reset)))
}

/// Appends [`SETTINGS`] to the help of each command with settings, after its examples. It replaces clap's mention of the
/// variable at each flag.
fn add_settings_help(command: clap::Command) -> clap::Command {
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let has_settings = settings(&command).next().is_some();
    let examples = command.get_after_long_help().map(ToString::to_string).filter(|_| has_settings);
    let command = if has_settings { command.after_help(SETTINGS) } else { command };
    let command = match examples {
        Some(examples) => command.after_long_help(format!("{examples}\n\n{SETTINGS}")),
        None => command,
    };
    let command = command.mut_args(|arg| arg.hide_env(true));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, add_settings_help))
}

fn dispatch(Parsed { cli, matches, file }: Parsed) -> Outcome {
    match cli.command {
        Command::Quickstart(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Account(command) => command.run(),
        Command::Key(command) => command.run(),
        Command::Pets(command) => command.run(),
        Command::Messages(command) => command.run(),
        Command::Migrate(command) => command.run(),
        Command::Move(command) => command.run(),
        Command::Backup(command) => command.run(),
        Command::Restore(command) => command.run(),
        Command::Openapi(command) => command.run(),
        Command::Config(command) => command.run(&matches, &file),
        Command::Completions(command) => command.run(self::command()),
        Command::Healthcheck(command) => command.run(),
    }
}

/// Opens the store, runs `command` on this thread, and closes the store.
fn with_store<T, F: Future<Output = Result<T, Failure>>>(
    common: &Common,
    create: Create,
    command: impl FnOnce(std::sync::Arc<Store>) -> F,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = std::sync::Arc::new(open(common, create).await?);
        let result = command(std::sync::Arc::clone(&store)).await;
        store.close().await;
        result
    })
}

/// Whether a command creates a missing database, and with which deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Create {
    IfMissing(Deployment),
    Never,
}

impl Create {
    const PRODUCTION: Self = Self::IfMissing(Deployment::Production);
}

/// Opens the PostgreSQL database if `--database-url` is set, otherwise the embedded database.
async fn open(common: &Common, create: Create) -> Result<Store, Failure> {
    let create = match create {
        Create::IfMissing(deployment) => Some(deployment),
        Create::Never => None,
    };
    let deployment = common.deployment;
    let opened = match &common.database_url {
        Some(url) => {
            let options = postgres::Options { deployment, create, ..postgres::Options::new(url.clone()) };
            Postgres::open(&options).await.map(|db| Store::Postgres(Box::new(db)))
        }
        None => {
            let options = sqlite::Options { deployment, create, ..sqlite::Options::new(&common.data_dir) };
            Sqlite::open(&options).map(Store::Sqlite)
        }
    };
    opened.map_err(|error| not_opened(common, error))
}

fn not_opened(common: &Common, error: StoreError) -> Failure {
    match (error, &common.database_url) {
        (StoreError::Unavailable(why), Some(url)) => Failure(format!("cannot open the database {url}: {why}")),
        (StoreError::Unavailable(why), None) => {
            Failure(format!("cannot open the database in {}: {why}", common.data_dir.display()))
        }
        (error, Some(url)) => Failure(format!("{url}: {error}")),
        (error, None) => error.into(),
    }
}

/// Reports a message to the user: as plain text on a terminal, otherwise as a log event. Passwords in URLs are hidden,
/// because a misplaced URL may be part of a path or name.
fn tell(level: Level, text: &str) {
    let text = passwords::hidden(text);
    if !std::io::stderr().is_terminal() {
        match level {
            Level::ERROR => tracing::error!("{text}"),
            Level::WARN => tracing::warn!("{text}"),
            _ => tracing::info!("{text}"),
        }
    } else if level <= LevelFilter::current() {
        telemetry::write(&format!("{}{text}\n", telemetry::label(level)));
    }
}

/// Writes the output of a command to stdout.
fn print(text: &str) -> Outcome {
    match write_out(text) {
        // The reader has closed the pipe, as in `petstore key list | head -1`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn write_out(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}
