//! Parses the command line, the environment and the configuration file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use crate::cli::terminal::passwords;
use crate::cli::{Cli, Command, command};
use crate::config::{File, environment};

/// The parsed command line, with the source of each setting.
pub struct Parsed {
    pub cli: Cli,
    pub matches: ArgMatches,
    pub file: File,
}

/// Parses the flags, then the flags and the environment, then both and the file. Each step adds one source, so that the
/// source of an error is known.
pub fn parse(arguments: &[OsString]) -> Result<Parsed, clap::Error> {
    let command = command();
    environment::ignored(command.clone()).try_get_matches_from(arguments).map_err(hide_passwords)?;
    let of_environment = |name: &str| environment::variable(&command, name).unwrap_or_else(|| name.to_owned());
    let matches = command.clone().try_get_matches_from(arguments).map_err(|error| match error.kind() {
        // clap's error does not name the variable.
        ErrorKind::InvalidUtf8 => {
            invalid(&format!("{} is not UTF-8", environment::invalid_utf8(&command).unwrap_or_default()))
        }
        _ => refused(error, of_environment),
    })?;
    refuse_settings_of_ephemeral(&matches)?;
    let Some(path) = matches.get_one::<PathBuf>("config") else {
        return parsed(matches, File::default());
    };
    let shown = passwords::hidden(&path.display().to_string());
    let file = File::read(path, &command).map_err(|why| invalid(&format!("{shown}: {why}")))?;
    let of_file = |name: &str| format!("{shown}: {name}");
    let matches = file.apply(command).try_get_matches_from(arguments).map_err(|error| refused(error, of_file))?;
    parsed(matches, file)
}

/// Rejects settings that contradict each other.
fn parsed(matches: ArgMatches, file: File) -> Result<Parsed, clap::Error> {
    let mut cli = Cli::from_arg_matches(&matches)?;
    // The flag precedes the URL of the environment or the file. `move` reads from the one and writes to the other.
    if is_flag(&matches, "data_dir") && !is_flag(&matches, "database_url") && !matches!(cli.command, Command::Move(_)) {
        cli.common.database_url = None;
        cli.common.require_standbys &= is_flag(&matches, "require_standbys");
    }
    if let Some(url) = &mut cli.common.database_url {
        url.timeout = cli.common.database_timeout;
    }
    if let Command::Serve(service) | Command::Quickstart(service) = &cli.command {
        service.certificate().map_err(invalid)?;
    }
    if let Command::Ephemeral(ephemeral) = &cli.command {
        ephemeral.check().map_err(|why| invalid(&why))?;
    }
    Ok(Parsed { cli, matches, file })
}

/// Rejects flags that would have no effect, because an ephemeral store is always a new one.
fn refuse_settings_of_ephemeral(matches: &ArgMatches) -> Result<(), clap::Error> {
    let without_effect = ["config", "data_dir", "database_url", "database_timeout", "deployment", "require_standbys"];
    let given = without_effect.into_iter().find(|id| is_flag(matches, id));
    match given.filter(|_| matches.subcommand_name() == Some("ephemeral")) {
        Some(id) => Err(invalid(&format!("--{} cannot be used with `petstore ephemeral`", id.replace('_', "-")))),
        None => Ok(()),
    }
}

fn is_flag(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn invalid(why: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::InvalidValue, format!("{why}\n"))
}

/// Returns an error with the source of the rejected setting and the reason. The reason does not contain the flag, because the
/// value came from the environment or the file.
fn refused(error: clap::Error, source: impl Fn(&str) -> String) -> clap::Error {
    let error = hide_passwords(error);
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.as_str(),
        _ => "",
    };
    let name = flag.trim_start_matches('-').split([' ', '[', '=']).next().unwrap_or_default();
    let why = error.to_string();
    let end = why.find("\n\nFor more").unwrap_or(why.len());
    let why = why[..end].trim_start_matches("error: ").trim_end().replace(&format!(" for '{flag}'"), "");
    invalid(&format!("{}: {why}", source(name)))
}

/// Hides passwords and escapes control characters in the parts of the command line that `error` quotes.
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
        // Shows the carriage return at the end of a value, for instance from a file with Windows line ends.
        let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        error.insert(kind, ContextValue::String(hidden.chars().map(escape).collect()));
    }
    error
}
