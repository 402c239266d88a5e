//! The configuration file.

use std::collections::HashMap;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::net::regular_file;

/// A configuration file. Its values become the defaults of the flags with the same names.
#[derive(Clone, Debug, Default)]
pub struct File(HashMap<String, Vec<String>>);

impl File {
    /// Reads the file. Fails if it is not TOML, or has a key that is not a setting of `command` or its subcommands.
    pub fn read(path: &Path, command: &Command) -> Result<Self, String> {
        let text = regular_file::read_at_start(path).map_err(|error| error.to_string())?;
        Self::parse(str::from_utf8(&text).map_err(|error| format!("is not UTF-8: {error}"))?, command)
    }

    /// Parses the text of a file, like [`File::read`].
    pub fn parse(text: &str, command: &Command) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let known: Vec<_> = all_arguments(command).into_iter().filter(|arg| is_setting(arg)).collect();
        let mut settings = HashMap::new();
        for (key, value) in table {
            let Some(arg) = known.iter().find(|arg| arg.get_long() == Some(&key)) else {
                let nearest = nearest(known.iter().filter_map(|arg| arg.get_long()), &key);
                let suggestion = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                return Err(format!("there is no setting `{key}`{suggestion}"));
            };
            if value.is_array() && !takes_list(arg) {
                return Err(format!("`{key}` takes one value, not a list"));
            }
            let values =
                values(&value).ok_or_else(|| format!("`{key}` must be a string, a number or a list of them"))?;
            settings.insert(key, values);
        }
        Ok(Self(settings))
    }

    /// Sets the defaults of `command` to this file's values. Flags and environment variables override them.
    pub fn apply(&self, command: Command) -> Command {
        let command = command.mut_args(|arg| match self.values_of(&arg) {
            Some(values) => arg.default_values(values.clone()),
            None => arg,
        });
        command.mut_subcommands(|sub| self.apply(sub))
    }

    /// Returns the name of the source of a setting's value.
    pub fn source(&self, arg: &Arg, matches: &ArgMatches) -> &'static str {
        match matches.value_source(arg.get_id().as_str()) {
            Some(ValueSource::CommandLine) => "flag",
            Some(ValueSource::EnvVariable) => "environment",
            _ if self.values_of(arg).is_some() => "file",
            _ => "default",
        }
    }

    fn values_of(&self, arg: &Arg) -> Option<&Vec<String>> {
        arg.get_env()?;
        self.0.get(arg.get_long()?)
    }
}

/// Returns the flags of a command that are settings.
pub fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| is_setting(arg))
}

/// Returns whether an argument is a setting: it has an environment variable, and is not `--config`.
fn is_setting(arg: &Arg) -> bool {
    arg.get_env().is_some() && arg.get_id() != "config"
}

/// Returns the arguments of a command and all its subcommands.
pub(super) fn all_arguments(command: &Command) -> Vec<&Arg> {
    let own = command.get_arguments();
    own.chain(command.get_subcommands().flat_map(all_arguments)).collect()
}

/// Minimum similarity of a suggested name, from 0 to 1. High enough to suggest only corrections of typing errors.
const SIMILAR: f64 = 0.8;

/// Returns the name most similar to `wanted`. `None` if none is similar.
pub(super) fn nearest<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let similar = names.map(|name| (strsim::jaro(name, wanted), name)).filter(|(similarity, _)| *similarity >= SIMILAR);
    similar.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

/// Describes a syntax error. Does not quote the line, unlike `error` itself, because it may contain a password.
fn malformed(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    format!("line {line} is not TOML: {}", error.message())
}

/// Returns whether a setting accepts several values.
pub fn takes_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn values(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::Array(items) => items.iter().map(scalar).collect(),
        single => scalar(single).map(|text| vec![text]),
    }
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    }
}
