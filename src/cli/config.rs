//! `petstore config`

use clap::{ArgMatches, Args, Subcommand};

use super::{Outcome, command, print};
use crate::config::{Common, File, ServiceSettings, settings, takes_list};
use crate::relay::RelayUrl;
use crate::store::postgres::DatabaseUrl;

#[derive(Subcommand, Debug)]
pub enum Config {
    Show(Show),
}

/// Print all settings in the format of the configuration file, with the source of each value
#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    service: ServiceSettings,
    #[command(flatten)]
    common: Common,
}

impl Config {
    pub fn run(self, matches: &ArgMatches, file: &File) -> Outcome {
        let (matches, command) = (leaf(matches), command());
        let show = command.find_subcommand("config").and_then(|config| config.find_subcommand("show"));
        let lines = show.into_iter().flat_map(settings).map(|arg| {
            let name = arg.get_long().unwrap_or_default();
            let from = file.source(arg, matches);
            match toml_value(arg, matches) {
                Some(value) => format!("{name} = {value} # {from}\n"),
                None => format!("# {name} is not set\n"),
            }
        });
        print(&lines.collect::<String>())
    }
}

/// Returns a setting's value in TOML, without passwords. `None` if it has no value.
fn toml_value(arg: &clap::Arg, matches: &ArgMatches) -> Option<String> {
    let id = arg.get_id().as_str();
    let database = matches.try_get_one::<DatabaseUrl>(id).ok().flatten().map(ToString::to_string);
    let relay = || matches.try_get_one::<RelayUrl>(id).ok().flatten().map(ToString::to_string);
    if let Some(url) = database.or_else(relay) {
        return Some(toml::Value::from(url).to_string());
    }
    let values = matches.get_raw(id)?;
    let mut values: Vec<_> = values.map(|value| toml::Value::from(&*value.to_string_lossy()).to_string()).collect();
    Some(if takes_list(arg) { format!("[{}]", values.join(", ")) } else { values.pop()? })
}

fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, matches)| leaf(matches))
}
