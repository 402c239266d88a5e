//! The command line, with one module per command: `run` (the service), `accounts`, `shop` and `data` (the store), `about` (the
//! program), and `terminal` (what they share).

mod about;
mod accounts;
mod data;
mod parse;
pub mod run;
mod runtime;
mod shop;
mod terminal;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Args, CommandFactory, Parser, Subcommand};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::app;
use crate::config::{Common, ServiceSettings, environment, settings};
use crate::domain::Actor;
use crate::runtime::clock::Clock;
use crate::telemetry;
use data::database::{not_opened, open, with_store};
use parse::{Parsed, parse};

/// Text at the end of the help of every command with settings.
const SETTINGS: &str = "\
Each setting is also an environment variable and a key of the configuration file: --data-dir is PETSTORE_DATA_DIR and \
data-dir. Flags override environment variables, which override the file.";

/// Text at the end of the program's help.
const BEFORE: &str = "\
The settings of the database and the log, such as --data-dir, are accepted before and after the command.";

/// An animal store as an HTTP and JSON service
#[derive(Parser, Debug)]
#[command(version = crate::BUILD, arg_required_else_help = true, max_term_width = 100, after_help = BEFORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The settings, given before or after the command.
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create sample data and run the service
    ///
    /// Creates a data directory with the deployment `staging`, an account, an API key and 30 animals. Then prints requests
    /// to try and runs the service. The key is stored in `quickstart.key` in the data directory and reused by the next
    /// quickstart.
    ///
    /// Fails on an existing production database, unless --deployment production is given.
    Quickstart(ServiceSettings),
    /// Run the service
    Serve(ServiceSettings),
    Ephemeral(run::ephemeral::Ephemeral),
    /// Create, list, suspend, export, delete and erase accounts, and set addresses, passwords and roles
    #[command(subcommand)]
    Account(accounts::account::Account),
    /// Create, list, revoke and rotate API keys
    #[command(subcommand)]
    Key(accounts::key::Key),
    Audit(accounts::audit::Audit),
    /// Import and export animals
    #[command(subcommand)]
    Pets(shop::pets::Pets),
    /// List, approve, deliver and cancel orders
    #[command(subcommand)]
    Orders(shop::orders::Orders),
    /// List, export, retry and discard messages
    #[command(subcommand)]
    Messages(shop::messages::Messages),
    Migrate(data::migrate::Migrate),
    Move(data::copy_to_postgres::Move),
    Backup(data::backup::Backup),
    Restore(data::backup::Restore),
    Reset(shop::reset::Reset),
    Openapi(about::openapi::Openapi),
    /// Show the configuration
    #[command(subcommand)]
    Config(about::config::Config),
    Completions(about::generated::Completions),
    Manual(about::generated::Manual),
    /// Check whether the service is ready
    ///
    /// Sends `GET /readyz` to the operations listener or, without one, the store or messages listener. The exit status is 0
    /// if the service is ready, and 1 if it is not ready or does not respond within 3 seconds.
    Healthcheck(ServiceSettings),
}

/// The result of a command. Its errors are for the operator.
pub type Outcome<T = ()> = app::Result<T>;

/// Runs a command line. Exit status: 0 for success, 1 for a failure, 2 for wrong usage, 129, 130 and 143 after SIGHUP, SIGINT
/// and SIGTERM. `ephemeral` returns that of its command.
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
    let is_ephemeral = matches!(parsed.cli.command, Command::Ephemeral(_));
    let serves = matches!(parsed.cli.command, Command::Quickstart(_) | Command::Serve(_));
    if serves {
        telemetry::start(log_level, log_format);
    } else {
        telemetry::start_plain(log_level);
    }
    // Dropped last, because the outcome is logged too.
    let _flush = match (serves || is_ephemeral).then(telemetry::never_block).transpose() {
        Ok(flush) => flush,
        Err(error) => {
            tell(Level::ERROR, &format!("cannot start the log thread: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if !is_ephemeral && !matches!(parsed.cli.command, Command::Completions(_) | Command::Manual(_)) {
        environment::warnings(&command()).iter().for_each(|warning| tell(Level::WARN, warning));
    }
    match terminal::interrupt::catch_file_size().map_err(Into::into).and_then(|()| dispatch(parsed)) {
        Ok(status) => status,
        Err(why) => {
            tell(Level::ERROR, &why.to_string());
            terminal::interrupt::exit_code().unwrap_or(ExitCode::FAILURE)
        }
    }
}

/// Returns the definition of the command line, for completions and the manual.
pub fn command() -> clap::Command {
    // On the program itself, the settings are hidden and ignore the environment: their commands show and read them.
    let program = Cli::command().args_override_self(true).mut_args(|arg| arg.hide(true).env(Resettable::Reset));
    add_settings_help(program.mut_subcommands(add_common))
}

/// Adds the settings to each command that uses them.
fn add_common(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(add_common);
    let has_none = ["ephemeral", "completions", "manual"].contains(&command.get_name());
    if has_none || command.is_subcommand_required_set() { command } else { Common::augment_args(command) }
}

/// Appends [`SETTINGS`] to the help of each command with settings, after its examples. It replaces clap's mention of the
/// variable at each flag. Lets a flag whose value is a `BOOL` stand alone, for `true`.
fn add_settings_help(command: clap::Command) -> clap::Command {
    let has_settings = settings(&command).next().is_some();
    let examples = command.get_after_long_help().map(ToString::to_string).filter(|_| has_settings);
    let command = if has_settings { command.after_help(SETTINGS) } else { command };
    let command = match examples {
        Some(examples) => command.after_long_help(format!("{examples}\n\n{SETTINGS}")),
        None => command,
    };
    let command = command.mut_args(|arg| match arg.get_value_names() {
        Some([name]) if name == "BOOL" => {
            arg.hide_env(true).num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        _ => arg.hide_env(true),
    });
    command.mut_subcommands(add_settings_help)
}

fn dispatch(Parsed { cli, matches, file }: Parsed) -> Outcome<ExitCode> {
    let common = &cli.common;
    let outcome = match cli.command {
        Command::Ephemeral(command) => return command.run(),
        Command::Quickstart(service) => run::quickstart::run(&service, common),
        Command::Serve(service) => run::serve::run(&service, common),
        Command::Account(command) => command.run(common),
        Command::Key(command) => command.run(common),
        Command::Audit(command) => command.run(common),
        Command::Pets(command) => command.run(common),
        Command::Orders(command) => command.run(common),
        Command::Messages(command) => command.run(common),
        Command::Migrate(command) => command.run(common),
        Command::Move(command) => command.run(common),
        Command::Backup(command) => command.run(common),
        Command::Restore(command) => command.run(common),
        Command::Reset(command) => command.run(common),
        Command::Openapi(command) => command.run(common),
        Command::Config(command) => command.run(common, &matches, &file),
        Command::Completions(command) => command.run(),
        Command::Manual(command) => command.run(),
        Command::Healthcheck(service) => run::healthcheck::run(&service),
    };
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Reports a message to the user: as plain text on a terminal, unless the log is JSON, otherwise as a log event. Passwords in
/// URLs are hidden, because a misplaced URL may be part of a path or name.
fn tell(level: Level, text: &str) {
    let text = terminal::passwords::hidden(text);
    if telemetry::IS_JSON.get() == Some(&true) || !io::stderr().is_terminal() {
        match level {
            Level::ERROR => tracing::error!("{text}"),
            Level::WARN => tracing::warn!("{text}"),
            _ => tracing::info!("{text}"),
        }
    } else if level <= LevelFilter::current() {
        telemetry::write(&format!("{}{text}\n", telemetry::label(level)));
    }
}

/// Returns the actor of a command, for the audit: the user id of the process, and who called `sudo`, as its variable says.
fn actor() -> Actor {
    let is_name = |user: &String| {
        (1..=64).contains(&user.len())
            && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@\\-".contains(&byte))
    };
    let sudo_user = std::env::var("SUDO_USER").ok().filter(is_name);
    let sudo = sudo_user.map_or_else(String::new, |user| format!(", sudo by {user}"));
    let name = format!("command line (uid {}{sudo})", rustix::process::getuid().as_raw());
    Actor { name: name.into(), ..Actor::command_line(Clock::System.now()) }
}

/// Prints a secret, which cannot be shown again, so it fails if the reader has closed the pipe. Its error says what was `done`,
/// and what to do `instead`.
fn print_secret(secret: &str, done: &str, instead: &str) -> Outcome {
    let printed = writeln!(io::stdout(), "{secret}");
    Ok(printed.map_err(|error| format!("{done}, but cannot be shown: {error}; {instead}"))?)
}

/// Writes the output of a command to stdout.
fn print(text: &str) -> Outcome {
    print_open(text).map(drop)
}

/// Prints like `print`. Returns false if the reader has closed the pipe, as in `petstore key list | head -1`.
fn print_open(text: &str) -> Outcome<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}
