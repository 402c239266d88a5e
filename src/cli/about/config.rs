//! `petstore config`

use std::time::Duration;

use clap::{ArgMatches, Args, Command, Subcommand};
use tracing::Level;

use crate::app;
use crate::cli::data::backup;
use crate::cli::data::database::refuse_standbys;
use crate::cli::{Outcome, not_opened, print, runtime, tell};
use crate::config::{Common, File, ServiceSettings, settings, takes_list};
use crate::domain::Deployment;
use crate::net::regular_file::in_time;
use crate::relay::RelayUrl;
use crate::store::StoreError;
use crate::store::postgres::{self, DatabaseUrl, Postgres};
use crate::store::sqlite::{self, Sqlite};

/// Maximum time to check the database. PostgreSQL's own error takes at least 5 s, because attempts to connect are repeated.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Subcommand, Debug)]
pub enum Config {
    /// Print all settings in the format of the configuration file, with the source of each value
    Show(ServiceSettings),
    /// Check settings, certificates, addresses and the database, and change nothing
    ///
    /// Exits with 1 if `petstore serve` would fail, or could not write its backups. An address in use is only a warning,
    /// because the service may be running.
    Check(ServiceSettings),
}

impl Config {
    pub fn run(self, common: &Common, matches: &ArgMatches, file: &File) -> Outcome {
        match self {
            Self::Show(_) => show(common, matches, file),
            Self::Check(service) => check(&service, common),
        }
    }
}

fn check(service: &ServiceSettings, common: &Common) -> Outcome {
    backup::check(service, common)?;
    if service.backup_every.is_some() {
        let folder = service.backup_dir.clone().unwrap_or_else(|| common.data_dir.join("backups"));
        // Only the folder counts, so the name is that of no database.
        let access = sqlite::Folder::new(&folder, "no-database").check_access();
        access.map_err(|error| format!("cannot write backups to {}: {error}", folder.display()))?;
    }
    refuse_standbys(common)?;
    let (runtime, Common { data_dir, database_url, require_standbys, .. }) = (runtime::runtime()?, common.clone());
    let stored = in_time(TIMEOUT, move || match database_url {
        Some(url) => runtime::block_on(runtime, Postgres::check_openable(&url, require_standbys)),
        None => {
            sqlite::folder(&data_dir).check_access()?;
            Sqlite::stored_deployment(&data_dir)
        }
    });
    let late = || Err(StoreError::Unavailable(format!("it did not respond within {TIMEOUT:?}")));
    let stored = stored.unwrap_or_else(late).map_err(|error| not_opened(common, error))?;
    if stored.is_none() && common.existing_only {
        let missing = match common.database_url {
            Some(_) => postgres::no_tables(),
            None => sqlite::Error::Missing(common.data_dir.clone()).into(),
        };
        return Err(not_opened(common, missing).into());
    }
    let new = common.deployment.unwrap_or(Deployment::Production);
    if let (Some(stored), Some(expected)) = (stored, common.deployment)
        && stored != expected
    {
        return Err(format!("the database is a {stored} one and cannot be opened as {expected}").into());
    }
    runtime::block_on(runtime::runtime()?, async { app::check(service, Some(stored.unwrap_or(new)), true) })?;
    let database = match stored {
        Some(deployment) => format!("the database is a {deployment} one"),
        None => format!("`petstore serve` would create a {new} database"),
    };
    tell(Level::INFO, &format!("the configuration is valid; {database}"));
    Ok(())
}

/// Returns the deployment of the database. `None` if there is none yet.
pub fn stored_deployment(common: &Common) -> Outcome<Option<Deployment>> {
    let stored = match &common.database_url {
        Some(url) => runtime::block_on(runtime::runtime()?, Postgres::stored_deployment(url)),
        None => Sqlite::stored_deployment(&common.data_dir),
    };
    Ok(stored.map_err(|error| not_opened(common, error))?)
}

fn show(common: &Common, matches: &ArgMatches, file: &File) -> Outcome {
    let (matches, command) = (leaf(matches), Common::augment_args(ServiceSettings::augment_args(Command::new("show"))));
    let lines = settings(&command).map(|arg| {
        let name = arg.get_long().unwrap_or_default();
        let from = file.source(arg, matches);
        // A flag for the folder overrides them.
        let is_effective = match name {
            "database-url" => common.database_url.is_some(),
            "require-standbys" => common.require_standbys == matches.get_flag("require_standbys"),
            _ => true,
        };
        match toml_value(arg, matches).filter(|_| is_effective) {
            Some(value) => format!("{name} = {value} # {from}\n"),
            None if name == "deployment" => deployment_line(common),
            None => format!("# {name} is not set\n"),
        }
    });
    print(&lines.collect::<String>())
}

/// The line of the deployment that is not set: that of the database, if it can be read.
fn deployment_line(common: &Common) -> String {
    match stored_deployment(common) {
        Ok(Some(stored)) => format!("deployment = \"{stored}\" # database\n"),
        Ok(None) => "# deployment is not set: a new database is a production one\n".to_owned(),
        Err(why) => format!("# deployment is not set, and that of the database is unknown: {why}\n"),
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
