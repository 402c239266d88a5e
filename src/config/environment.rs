//! Environment variables of the settings, and warnings about unknown ones.

use std::env;

use clap::builder::Resettable;
use clap::{Arg, Command, ValueHint};

use super::file::{all_arguments, nearest};

const PREFIX: &str = "PETSTORE_";

/// Removes all environment variables from `command`, to parse the flags alone.
pub fn ignored(command: Command) -> Command {
    command.mut_args(|arg| arg.env(Resettable::Reset)).mut_subcommands(ignored)
}

/// Returns the environment variable of the setting `--NAME`.
pub fn variable(command: &Command, name: &str) -> Option<String> {
    all_arguments(command).into_iter().filter(|arg| arg.get_long() == Some(name)).find_map(of)
}

/// Returns a variable whose value must be UTF-8 and is not.
pub fn invalid_utf8(command: &Command) -> Option<String> {
    let is_invalid = |arg: &&Arg| arg.get_env().and_then(env::var_os).is_some_and(|value| value.to_str().is_none());
    let is_path = |arg: &&Arg| arg.get_value_hint() == ValueHint::AnyPath;
    all_arguments(command).into_iter().filter(|arg| is_invalid(arg) && !is_path(arg)).find_map(of)
}

/// Returns a warning for each variable that begins with `PETSTORE_` and is no setting, sorted by name.
pub fn warnings(command: &Command) -> Vec<String> {
    let known: Vec<_> = all_arguments(command).into_iter().filter_map(of).collect();
    let mut unknown: Vec<_> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| name.starts_with(PREFIX) && !known.contains(name) && !is_of_kubernetes(name, value))
        .map(|(name, _)| name)
        .collect();
    unknown.sort_unstable();
    let warning = |name: &String| {
        let names = known.iter().filter_map(|name| name.strip_prefix(PREFIX));
        let nearest = nearest(names, name.strip_prefix(PREFIX).unwrap_or_default());
        let suggestion = nearest.map_or(String::new(), |nearest| format!("; did you mean {PREFIX}{nearest}?"));
        format!("{name} in the environment is not a setting{suggestion}")
    };
    unknown.iter().map(warning).collect()
}

fn of(arg: &Arg) -> Option<String> {
    Some(arg.get_env()?.to_str()?.to_owned())
}

/// Returns whether Kubernetes set the variable. It sets some in every container for each of its services, such as
/// `PETSTORE_SERVICE_HOST` for a service named `petstore`.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let name = &name[PREFIX.len() - 1..];
    let is_port = |(_, rest): (&str, &str)| rest.is_empty() || rest.starts_with(|first: char| first.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(is_port)
        || (name.ends_with("_PORT") && value.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_kubernetes_are_recognised() {
        for (name, value) in [
            ("PETSTORE_SERVICE_HOST", "10.0.0.1"),
            ("PETSTORE_MESSAGES_SERVICE_HOST", "10.0.0.1"),
            ("PETSTORE_SERVICE_PORT", "8080"),
            ("PETSTORE_SERVICE_PORT_HTTP", "8080"),
            ("PETSTORE_PORT", "tcp://10.0.0.1:8080"),
            ("PETSTORE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("PETSTORE_OPS_PORT_8082_TCP_ADDR", "10.0.0.1"),
        ] {
            assert!(is_of_kubernetes(name, value), "{name}");
        }
        for (name, value) in [("PETSTORE_PORT", "8080"), ("PETSTORE_LISEN", ":8080"), ("PETSTORE_PORT_NUMBER", "1")] {
            assert!(!is_of_kubernetes(name, value), "{name}");
        }
    }
}
