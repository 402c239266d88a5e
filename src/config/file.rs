//! The configuration file.

use std::collections::HashMap;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// A configuration file. Its values become the defaults of the flags with the same names.
#[derive(Clone, Debug, Default)]
pub struct File(HashMap<String, Vec<String>>);

impl File {
    /// Reads the file. Rejects keys that are not settings of `command` or its subcommands.
    pub fn read(path: &Path, command: &Command) -> Result<Self, String> {
        Self::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?, command)
    }

    /// Parses the text of a file, like [`File::read`].
    pub fn parse(text: &str, command: &Command) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let mut known = Vec::new();
        collect_settings(command, &mut known);
        let mut settings = HashMap::new();
        for (key, value) in table {
            let Some((_, takes_list)) = known.iter().find(|(name, _)| *name == key) else {
                let nearest = nearest(known.iter().map(|(name, _)| *name), &key);
                let suggestion = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                return Err(format!("there is no setting `{key}`{suggestion}"));
            };
            if value.is_array() && !takes_list {
                return Err(format!("`{key}` takes one value and no list"));
            }
            let values =
                values(&value).ok_or_else(|| format!("`{key}` must be a string, a number or a list of them"))?;
            settings.insert(key, values);
        }
        Ok(Self(settings))
    }

    /// Sets the defaults of `command` to this file's values. Flags and environment variables override them.
    pub fn apply(&self, command: Command) -> Command {
        let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let command = command.mut_args(|arg| match self.values_of(&arg) {
            Some(values) => arg.default_values(values.clone()),
            None => arg,
        });
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| self.apply(sub)))
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

/// Returns the flags of a command that are settings: all with an environment variable, except `--config`.
pub fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| arg.get_env().is_some() && arg.get_id() != "config")
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

/// Collects the name of each setting, and whether it accepts a list.
fn collect_settings<'a>(command: &'a Command, found: &mut Vec<(&'a str, bool)>) {
    found.extend(settings(command).filter_map(|arg| Some((arg.get_long()?, takes_list(arg)))));
    command.get_subcommands().for_each(|sub| collect_settings(sub, found));
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
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}
