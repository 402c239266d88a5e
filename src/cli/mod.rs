//! The command line: one file per command.

mod account;
mod completions;
mod config;
mod healthcheck;
mod key;
mod migrate;
mod openapi;
mod pets;
mod quickstart;
mod serve;

use std::ffi::OsString;
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Common, File};
use crate::store::sqlite::{self, Sqlite};
use crate::store::{Store, StoreError};
use crate::telemetry;

/// An animal store as an HTTP and JSON service
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Everything for a first look: a database, an account, a key, 30 animals, and the service
    Quickstart(quickstart::Quickstart),
    /// Run the service
    Serve(serve::Serve),
    /// Make accounts
    #[command(subcommand)]
    Account(account::Account),
    /// Make, list, revoke and rotate API keys
    #[command(subcommand)]
    Key(key::Key),
    /// Take animals in and out as newline-delimited JSON
    #[command(subcommand)]
    Pets(pets::Pets),
    /// Bring the database's schema up to date
    Migrate(migrate::Migrate),
    /// Print the OpenAPI document
    Openapi(openapi::Openapi),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::Config),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Exit with 0 when the service at the configured address is ready, else with 1
    Healthcheck(healthcheck::Healthcheck),
}

/// Why a command failed, for the person at the terminal.
#[derive(Debug)]
struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type Outcome = Result<(), Failure>;

/// What was parsed, and where each setting came from.
struct Parsed {
    cli: Cli,
    matches: ArgMatches,
    file: File,
}

/// Runs a command line: 0 for success, 1 for a failure, 2 for wrong usage.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = match parse(arguments.into_iter().collect()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // A closed stdout or stderr leaves nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            let _ = writeln!(std::io::stderr(), "petstore: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Parsed, clap::Error> {
    let command = Cli::command();
    let matches = command.clone().try_get_matches_from(&arguments)?;
    let Some(path) = config_file(&matches) else {
        return Ok(Parsed { cli: Cli::from_arg_matches(&matches)?, matches, file: File::default() });
    };
    let mut usage = command.clone();
    let file = File::read(&path, &command).map_err(|error| usage.error(clap::error::ErrorKind::InvalidValue, error))?;
    let matches = file.apply(command).try_get_matches_from(&arguments)?;
    Ok(Parsed { cli: Cli::from_arg_matches(&matches)?, matches, file })
}

/// The configuration file that the command or its subcommand was given.
fn config_file(matches: &ArgMatches) -> Option<PathBuf> {
    let given = matches.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    given.or_else(|| matches.subcommand().and_then(|(_, matches)| config_file(matches)))
}

fn dispatch(Parsed { cli, matches, file }: Parsed) -> Outcome {
    match cli.command {
        Command::Quickstart(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Account(command) => command.run(),
        Command::Key(command) => command.run(),
        Command::Pets(command) => command.run(),
        Command::Migrate(command) => command.run(),
        Command::Openapi(command) => command.run(),
        Command::Config(command) => command.run(&matches, &file),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Healthcheck(command) => command.run(),
    }
}

/// Runs `command` on a store that is opened before and closed after it, on this thread.
fn with_store<T, F: Future<Output = Result<T, Failure>>>(
    common: &Common,
    create: Create,
    command: impl FnOnce(std::sync::Arc<Store>) -> F,
) -> Result<T, Failure> {
    telemetry::start(common.log_level);
    let store = std::sync::Arc::new(open(common, create)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let result = command(std::sync::Arc::clone(&store)).await;
        store.close().await;
        result
    })
}

/// Whether a command may make the database it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Create {
    IfMissing,
    Never,
}

fn open(common: &Common, create: Create) -> Result<Store, StoreError> {
    let options = sqlite::Options {
        deployment: common.deployment,
        create: create == Create::IfMissing,
        ..sqlite::Options::new(&common.data_dir)
    };
    Sqlite::open(&options).map(Store::Sqlite)
}

/// Writes what was asked for to stdout.
fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Who reads has seen enough, as in `petstore key list | head -1`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
