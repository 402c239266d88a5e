//! What can be configured: flags over environment over the file over defaults.

mod addresses;
pub mod environment;
mod listen;
mod network;
pub mod plaintext_check;
mod rate_limit;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, ValueEnum};

use crate::domain::{Deployment, Invalid};
use crate::relay::RelayUrl;
use crate::store::postgres::DatabaseUrl;
use crate::telemetry::{LogFormat, LogLevel};
pub use addresses::{Addresses, BaseUrl, Scheme, reachable};
use listen::address;
pub use network::{Network, client};
pub use rate_limit::RateLimit;

/// Settings of the database and the log, which every command that reads settings takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings of the database and the log")]
pub struct Common {
    /// The folder of the embedded database
    #[arg(long, global = true, value_name = "DIR", env = "PETSTORE_DATA_DIR", default_value = "petstore-data")]
    pub data_dir: PathBuf,
    /// A PostgreSQL database instead: postgres://USER:PASSWORD@HOST:PORT/DATABASE; several HOST:PORT, separated by
    /// commas, are tried in turn
    #[arg(long, global = true, value_name = "URL", env = "PETSTORE_DATABASE_URL", value_parser = DATABASE_URL)]
    pub database_url: Option<DatabaseUrl>,
    /// What the database is for; chosen when it is made, refused when it differs later
    #[arg(long, global = true, value_name = "NAME", env = "PETSTORE_DEPLOYMENT")]
    pub deployment: Option<Deployment>,
    /// A TOML file of settings
    #[arg(long, global = true, value_name = "FILE", env = "PETSTORE_CONFIG")]
    pub config: Option<PathBuf>,
    /// How much to log, on stderr
    #[arg(long, global = true, value_name = "LEVEL", env = "PETSTORE_LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// How `serve` and `quickstart` write the log; auto is human on a terminal, else json
    #[arg(long, global = true, value_name = "FORMAT", env = "PETSTORE_LOG_FORMAT", default_value = "auto")]
    pub log_format: LogFormat,
}

/// What `serve` needs beyond the database.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings of the service")]
pub struct Service {
    /// The address of the store listener: an IP address or localhost, and a port; :8080 is every IPv4 address (0.0.0.0:8080),
    /// port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// The address of the messages listener
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_MESSAGES_LISTEN", default_value = "127.0.0.1:8081", value_parser = address)]
    pub messages_listen: SocketAddr,
    /// The address of the operations listener
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_OPS_LISTEN", default_value = "127.0.0.1:8082", value_parser = address)]
    pub ops_listen: SocketAddr,
    /// Which listeners to open, separated by commas
    #[arg(
        long,
        value_name = "LISTENERS",
        env = "PETSTORE_LISTENERS",
        value_delimiter = ',',
        default_value = "store,messages,ops"
    )]
    pub listeners: Vec<Listener>,
    /// The public address of the store API, ending in /v1 [default: the address bound]
    #[arg(long, value_name = "URL", env = "PETSTORE_BASE_URL", value_parser = BaseUrl::parse)]
    pub base_url: Option<BaseUrl>,
    /// The public address of the messages API, ending in /v1 [default: the address bound]
    #[arg(long, value_name = "URL", env = "PETSTORE_MESSAGES_BASE_URL", value_parser = BaseUrl::parse)]
    pub messages_base_url: Option<BaseUrl>,
    /// Where a production service has its staging sibling, ending in /v1
    #[arg(long, value_name = "URL", env = "PETSTORE_STAGING_BASE_URL", value_parser = BaseUrl::parse)]
    pub staging_base_url: Option<BaseUrl>,
    /// An origin whose pages may call the API in a browser; may be given several times
    #[arg(long, value_name = "ORIGIN", env = "PETSTORE_CORS_ORIGIN", value_delimiter = ',', value_parser = origin)]
    pub cors_origin: Vec<String>,
    /// How many requests an account may send through this process, per s, min or h, for instance 600/min [default: as
    /// many as it likes]
    #[arg(long, value_name = "LIMIT", env = "PETSTORE_RATE_LIMIT", value_parser = RateLimit::parse)]
    pub rate_limit: Option<RateLimit>,
    /// Whether people may make accounts for themselves, in the console
    #[arg(long, value_name = "WHETHER", env = "PETSTORE_REGISTRATION", default_value = "open")]
    pub registration: Registration,
    /// A proxy that is believed about whom it forwards for (X-Forwarded-For): an address or a network
    #[arg(long, value_name = "NETWORK", env = "PETSTORE_TRUSTED_PROXY", value_delimiter = ',', value_parser = Network::parse)]
    pub trusted_proxy: Vec<Network>,
    /// The certificate of the listeners, with its chain (PEM): with it they speak TLS; read again when it changes
    #[arg(long, value_name = "FILE", env = "PETSTORE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", env = "PETSTORE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Serve production on an address that other machines reach, without TLS and without a proxy that has it
    #[arg(
        long,
        value_name = "WHETHER",
        env = "PETSTORE_INSECURE",
        default_value = "false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub insecure: bool,
    /// How many connections may be open at once; further ones are answered 503 [default: as many as the file descriptors
    /// allow]
    #[arg(long, value_name = "NUMBER", env = "PETSTORE_MAX_CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: Option<u32>,
    /// How long to go on answering after a stop signal, so that proxies notice that /readyz says no
    #[arg(long, value_name = "DURATION", env = "PETSTORE_DRAIN_DELAY", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,
    /// How often to back up the embedded database, for instance 1h [default: never]
    #[arg(long, value_name = "DURATION", env = "PETSTORE_BACKUP_EVERY", value_parser = at_least_a_second)]
    pub backup_every: Option<Duration>,
    /// How many of these backups to keep, the newest
    #[arg(long, value_name = "NUMBER", env = "PETSTORE_BACKUP_KEEP", default_value = "24", value_parser = clap::value_parser!(u32).range(1..))]
    pub backup_keep: u32,
    /// The folder of these backups [default: backups in the data directory]
    #[arg(long, value_name = "DIR", env = "PETSTORE_BACKUP_DIR")]
    pub backup_dir: Option<PathBuf>,
    /// The NATS server that messages go to: nats://USER:PASSWORD@HOST:PORT; several HOST:PORT, separated by commas, are
    /// tried in turn; tls:// asks for TLS [default: messages wait in the database]
    #[arg(long, value_name = "URL", env = "PETSTORE_RELAY", value_parser = RELAY_URL)]
    pub relay: Option<RelayUrl>,
    /// How long messages are kept in the database once the NATS server has acknowledged them
    #[arg(long, value_name = "DURATION", env = "PETSTORE_RELAY_RETENTION", default_value = "7d", value_parser = duration)]
    pub relay_retention: Duration,
    /// Log a line for every request, at level info
    #[arg(
        long,
        value_name = "WHETHER",
        env = "PETSTORE_LOG_REQUESTS",
        default_value = "false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub log_requests: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listener {
    Store,
    Messages,
    Ops,
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::Messages => "messages",
            Self::Ops => "operations",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Registration {
    Open,
    Closed,
}

/// Who may come in, by which way, and how often.
#[derive(Clone, Debug)]
pub struct Admission {
    pub registration: Registration,
    pub trusted_proxies: Vec<Network>,
    pub rate_limit: Option<RateLimit>,
}

impl Admission {
    pub fn of(service: &Service) -> Self {
        Self {
            registration: service.registration,
            trusted_proxies: service.trusted_proxy.clone(),
            rate_limit: service.rate_limit,
        }
    }
}

/// Reads an address that may hold a password: unlike clap's own parsers, it does not repeat what it refuses.
#[derive(Clone, Debug)]
pub struct SecretUrlParser<T> {
    /// Whose address it is.
    whose: &'static str,
    parse: fn(&str) -> Result<T, Invalid>,
}

pub const DATABASE_URL: SecretUrlParser<DatabaseUrl> = SecretUrlParser { whose: "database", parse: DatabaseUrl::parse };

const RELAY_URL: SecretUrlParser<RelayUrl> = SecretUrlParser { whose: "relay", parse: RelayUrl::parse };

impl<T: Clone + Send + Sync + 'static> TypedValueParser for SecretUrlParser<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        (self.parse)(&value.to_string_lossy()).map_err(|why| {
            let told = format!("the address of the {} {why}\n", self.whose);
            let mut error = clap::Error::raw(ErrorKind::ValueValidation, told).with_cmd(command);
            if let Some(arg) = arg {
                error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
            }
            error
        })
    }
}

/// A number and `s`, `m`, `h` or `d`.
pub fn duration(text: &str) -> Result<Duration, Invalid> {
    let invalid = || Invalid("a duration is a number and s, m, h or d, for instance 90d".into());
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(invalid)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(invalid()),
    };
    // A thousand years: beyond it is a typing error, and times stay within what can be shown.
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let total = number.checked_mul(seconds).filter(|total| *total <= 365_250 * 24 * 60 * 60);
    total.map(Duration::from_secs).ok_or_else(|| Invalid("a duration is at most 365250d".into()))
}

/// Parses a duration of at least 1 s.
pub fn at_least_a_second(text: &str) -> Result<Duration, Invalid> {
    let duration = duration(text)?;
    if duration.is_zero() { Err(Invalid("it must be at least 1s".into())) } else { Ok(duration) }
}

fn origin(text: &str) -> Result<String, Invalid> {
    let well_formed = BaseUrl::parse(&format!("{text}/v1")).is_ok_and(|url| url.origin() == text);
    well_formed.then(|| text.to_owned()).ok_or_else(|| {
        Invalid("an origin is a scheme, a host and perhaps a port, for instance https://example.com".into())
    })
}

/// The values of a configuration file, as defaults for the flags of the same name.
#[derive(Clone, Debug, Default)]
pub struct File(toml::Table);

impl File {
    /// Reads the file and checks that `command` and its subcommands know each of its keys.
    pub fn read(path: &Path, command: &Command) -> Result<Self, String> {
        Self::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?, command)
    }

    /// The same from the text of a file.
    pub fn parse(text: &str, command: &Command) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let mut known = Vec::new();
        collect_settings(command, &mut known);
        for (key, value) in &table {
            let Some((_, takes_list)) = known.iter().find(|(name, _)| name == key) else {
                let nearest = nearest(known.iter().map(|(name, _)| *name), key);
                let suggestion = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                return Err(format!("there is no setting `{key}`{suggestion}"));
            };
            if value.is_array() && !takes_list {
                return Err(format!("`{key}` takes one value and no list"));
            }
            values(value).ok_or_else(|| format!("`{key}` must be a string, a number or a list of them"))?;
        }
        Ok(Self(table))
    }

    /// `command` with this file's values for defaults, so that flags and environment stand over them.
    pub fn apply(&self, command: Command) -> Command {
        let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let command = command.mut_args(|arg| match self.value_of(&arg) {
            Some(values) => arg.default_values(values),
            None => arg,
        });
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| self.apply(sub)))
    }

    /// Where the value of a setting comes from.
    pub fn source(&self, arg: &Arg, matches: &ArgMatches) -> Source {
        match matches.value_source(arg.get_id().as_str()) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Environment,
            _ if self.value_of(arg).is_some() => Source::File,
            _ => Source::Default,
        }
    }

    fn value_of(&self, arg: &Arg) -> Option<Vec<String>> {
        arg.get_env()?;
        values(self.0.get(arg.get_long()?)?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File,
    Default,
}

/// The settings among a command's flags: those that the environment can give too, save for the file's own place.
pub fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| arg.get_env().is_some() && arg.get_id() != "config")
}

/// Similarity from which on a name is suggested for another, from 0 to 1: a typing error, not just some common letters.
const SIMILAR: f64 = 0.8;

/// Returns the name most similar to `wanted`. `None` if none is similar.
fn nearest<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let similar = names.map(|name| (strsim::jaro(name, wanted), name)).filter(|(similarity, _)| *similarity >= SIMILAR);
    similar.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

/// Where `text` is no TOML, and why. Not the line itself, as the error would show it: it may hold a password.
fn malformed(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    format!("line {line} is not TOML: {}", error.message())
}

/// Whether a setting takes several values.
pub fn takes_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// Each setting's name, and whether it takes a list.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        assert_eq!(duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for refused in ["", "d", "90", "-1d", "1.5h", "1w", "90 d", "ä", "99999999999999999999d", "365251d"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
    }
}
