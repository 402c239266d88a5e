//! Settings from flags, environment variables, the configuration file and defaults, in this order of precedence.

pub mod environment;
mod file;
pub mod plaintext_check;
mod values;

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::uri::Scheme;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches, ValueEnum};

use crate::api::{Addresses, ApiSettings, BaseUrl, Listener, Network, RateLimit};
use crate::domain::time::duration;
use crate::domain::{Deployment, Invalid};
use crate::relay::RelayUrl;
use crate::store::postgres::{self, DatabaseUrl};
use crate::telemetry::{LogFormat, LogLevel};
pub use file::{File, settings, takes_list};
pub use values::{Keep, at_least_a_second};
use values::{address, contact, database_timeout, folder, origin};

// Settings of all commands that open the database. Not rustdoc, which clap would show as the help of each command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings of the database and the log")]
pub struct Common {
    /// Folder of the embedded database; as a flag, it overrides a database-url from elsewhere
    #[arg(long, global = true, value_name = "DIR", env = "PETSTORE_DATA_DIR", default_value = "petstore-data", value_parser = PathBufValueParser::new().try_map(folder))]
    pub data_dir: PathBuf,
    /// PostgreSQL database to use instead: postgres://USER:PASSWORD@HOST:PORT/DATABASE; several HOST:PORT, separated by
    /// commas, are tried at once
    #[arg(long, global = true, value_name = "URL", env = "PETSTORE_DATABASE_URL", value_parser = DATABASE_URL)]
    pub database_url: Option<DatabaseUrl>,
    /// Reject reads and writes unless as many standbys are connected to PostgreSQL as its commits wait for, which bounds
    /// stale reads from an isolated primary
    #[arg(long, global = true, value_name = "BOOL", env = "PETSTORE_REQUIRE_STANDBYS", default_value = "false", action = ArgAction::Set)]
    pub require_standbys: bool,
    /// Longest time for an operation on PostgreSQL, 0.5s to 60s, after which requests get 503; the timeouts of its parts
    /// follow from it
    #[arg(long, global = true, value_name = "DURATION", env = "PETSTORE_DATABASE_TIMEOUT", default_value = "1.8s", value_parser = database_timeout)]
    pub database_timeout: Duration,
    /// Purpose of the database, set when it is created; an existing database must match
    #[arg(long, global = true, value_name = "NAME", env = "PETSTORE_DEPLOYMENT", value_parser = one_of(&Deployment::ALL, Deployment::as_str))]
    pub deployment: Option<Deployment>,
    /// Fail without a database, as after a volume was not mounted; only `restore` and `move` create one
    #[arg(long, global = true, value_name = "BOOL", env = "PETSTORE_EXISTING_ONLY", default_value = "false", action = ArgAction::Set)]
    pub existing_only: bool,
    /// Configuration file (TOML)
    #[arg(long, global = true, value_name = "FILE", env = "PETSTORE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Lowest level to log to stderr
    #[arg(long, global = true, value_name = "LEVEL", env = "PETSTORE_LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Log format of `serve` and `quickstart`; auto is human on a terminal, otherwise json
    #[arg(long, global = true, value_name = "FORMAT", env = "PETSTORE_LOG_FORMAT", default_value = "auto")]
    pub log_format: LogFormat,
}

/// Settings of the service.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings of the service")]
pub struct ServiceSettings {
    /// Address of the store listener: an IP address or localhost, and a port; :8080 means all IPv4 addresses, port 0 a
    /// free port
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Address of the messages listener
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_MESSAGES_LISTEN", default_value = "127.0.0.1:8081", value_parser = address)]
    pub messages_listen: SocketAddr,
    /// Address of the operations listener
    #[arg(long, value_name = "ADDRESS", env = "PETSTORE_OPS_LISTEN", default_value = "127.0.0.1:8082", value_parser = address)]
    pub ops_listen: SocketAddr,
    /// Listeners to open, separated by commas
    #[arg(long, value_name = "LISTENERS", env = "PETSTORE_LISTENERS", value_delimiter = ',', default_value = "store,messages,ops", value_parser = one_of(&Listener::ALL, Listener::as_str))]
    pub listeners: Vec<Listener>,
    /// Public base URL of the store API, ending in /v1 [default: the address bound]
    #[arg(long, value_name = "URL", env = "PETSTORE_BASE_URL", value_parser = BaseUrl::parse)]
    pub base_url: Option<BaseUrl>,
    /// Public base URL of the messages API, ending in /v1 [default: the address bound]
    #[arg(long, value_name = "URL", env = "PETSTORE_MESSAGES_BASE_URL", value_parser = BaseUrl::parse)]
    pub messages_base_url: Option<BaseUrl>,
    /// Public base URL of the staging service, ending in /v1, to mention in the documentation
    #[arg(long, value_name = "URL", env = "PETSTORE_STAGING_BASE_URL", value_parser = BaseUrl::parse)]
    pub staging_base_url: Option<BaseUrl>,
    /// Origin whose pages may call the API from a browser; can be repeated
    #[arg(long, value_name = "ORIGIN", env = "PETSTORE_CORS_ORIGIN", value_delimiter = ',', value_parser = origin)]
    pub cors_origin: Vec<String>,
    /// Maximum number of requests per account and process, per s, min or h, for instance 600/min [default: unlimited]
    #[arg(long, value_name = "LIMIT", env = "PETSTORE_RATE_LIMIT", value_parser = RateLimit::parse)]
    pub rate_limit: Option<RateLimit>,
    /// Allow visitors to create an account in the console
    #[arg(long, value_name = "MODE", env = "PETSTORE_REGISTRATION", default_value = "open")]
    pub registration: Registration,
    /// Contact for vulnerability reports in /.well-known/security.txt: a mailto:, tel: or https: URL; can be repeated
    #[arg(long, value_name = "URL", env = "PETSTORE_SECURITY_CONTACT", value_delimiter = ',', value_parser = contact)]
    pub security_contact: Vec<String>,
    /// Let clients of a staging service request failures with the Prefer header
    #[arg(long, value_name = "MODE", env = "PETSTORE_SIMULATION", default_value = "on")]
    pub simulation: SimulationMode,
    /// Proxy whose X-Forwarded-For header is trusted: an IP address or a network; can be repeated
    #[arg(long, value_name = "NETWORK", env = "PETSTORE_TRUSTED_PROXY", value_delimiter = ',', value_parser = Network::parse)]
    pub trusted_proxy: Vec<Network>,
    /// TLS certificate chain (PEM), which turns on TLS; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "PETSTORE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", env = "PETSTORE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Allow production without TLS and without a trusted proxy on an address that other machines can reach
    #[arg(long, value_name = "BOOL", env = "PETSTORE_INSECURE", default_value = "false", action = ArgAction::Set)]
    pub insecure: bool,
    /// Maximum number of open connections; further ones get a 503 response, or are closed with TLS [default: limited by
    /// file descriptors]
    #[arg(long, value_name = "NUMBER", env = "PETSTORE_MAX_CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: Option<u32>,
    /// Time to keep accepting requests after a stop signal, until proxies have noticed that /readyz responds 503
    #[arg(long, value_name = "DURATION", env = "PETSTORE_DRAIN_DELAY", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,
    /// Interval of backups of the embedded database, for instance 1h [default: no backups]
    #[arg(long, value_name = "DURATION", env = "PETSTORE_BACKUP_EVERY", value_parser = at_least_a_second)]
    pub backup_every: Option<Duration>,
    /// Number of these backups to keep, or the greatest age of one, for instance 30d
    #[arg(long, value_name = "NUMBER|DURATION", env = "PETSTORE_BACKUP_KEEP", default_value = "24", value_parser = Keep::parse)]
    pub backup_keep: Keep,
    /// Folder of these backups [default: backups in the data directory]
    #[arg(long, value_name = "DIR", env = "PETSTORE_BACKUP_DIR", value_parser = PathBufValueParser::new().try_map(folder))]
    pub backup_dir: Option<PathBuf>,
    /// Web server that gets the messages, as https://HOST/PATH; a bridge publishes them to a broker (docs/relay.md)
    /// [default: messages stay queued in the database]
    #[arg(long, value_name = "URL", env = "PETSTORE_RELAY", value_parser = RELAY_URL)]
    pub relay: Option<RelayUrl>,
    /// File with the secret that signs messages to a web server: a line of whsec_ and base64, or two while one is
    /// replaced; read again on SIGHUP
    #[arg(long, value_name = "FILE", env = "PETSTORE_RELAY_SECRET_FILE")]
    pub relay_secret_file: Option<PathBuf>,
    /// Relay to http:// on other machines, on staging only
    #[arg(long, value_name = "BOOL", env = "PETSTORE_RELAY_ALLOW_PLAINTEXT", default_value = "false", action = ArgAction::Set)]
    pub relay_allow_plaintext: bool,
    /// Retention of sent messages in the database
    #[arg(long, value_name = "DURATION", env = "PETSTORE_RELAY_RETENTION", default_value = "7d", value_parser = duration)]
    pub relay_retention: Duration,
    /// Retention of the audit of accounts, keys and orders
    #[arg(long, value_name = "DURATION", env = "PETSTORE_AUDIT_RETENTION", default_value = "365d", value_parser = at_least_a_second)]
    pub audit_retention: Duration,
    /// Log every request except health checks, at level info
    #[arg(long, value_name = "BOOL", env = "PETSTORE_LOG_REQUESTS", default_value = "false", action = ArgAction::Set)]
    pub log_requests: bool,
}

impl ServiceSettings {
    /// Returns the settings that flags such as `--listen=:8080` give, and the defaults of the others. Ignores the environment.
    ///
    /// # Panics
    ///
    /// Panics if a flag or its value is invalid.
    pub fn of_flags(flags: impl IntoIterator<Item = OsString>) -> Self {
        let command = environment::ignored(Self::augment_args(Command::new("ephemeral")));
        let matches = command.no_binary_name(true).try_get_matches_from(flags);
        matches.and_then(|matches| Self::from_arg_matches(&matches)).expect("the flags are valid")
    }

    /// Returns the address of a listener.
    pub const fn address(&self, listener: Listener) -> SocketAddr {
        match listener {
            Listener::Store => self.listen,
            Listener::Messages => self.messages_listen,
            Listener::Ops => self.ops_listen,
        }
    }

    /// Returns the settings of the API.
    pub fn of_api(&self) -> ApiSettings {
        ApiSettings {
            simulates: self.simulation == SimulationMode::On,
            rate_limit: self.rate_limit,
            trusted_proxies: self.trusted_proxy.clone(),
            logs_requests: self.log_requests,
        }
    }

    /// Returns the public addresses. The listeners are bound to the given ones.
    pub fn addresses(&self, store_bound: SocketAddr, messages_bound: SocketAddr) -> Addresses {
        let scheme = if self.tls_cert.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let known = |configured: &Option<BaseUrl>, bound| {
            configured.clone().unwrap_or_else(|| BaseUrl::of_bound(&scheme, bound))
        };
        Addresses {
            base_url: known(&self.base_url, store_bound),
            messages_base_url: known(&self.messages_base_url, messages_bound),
            staging_base_url: self.staging_base_url.clone(),
            cors_origins: self.cors_origin.clone(),
            security_contacts: self.security_contact.clone(),
            scheme,
            store_bound,
        }
    }

    /// Returns the files of the certificate and its key. `None` without TLS. Fails if one of the two is missing.
    pub fn certificate(&self) -> Result<Option<(&Path, &Path)>, &'static str> {
        match (&self.tls_cert, &self.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (Some(_), None) => Err("a certificate needs its private key: give --tls-key too"),
            (None, Some(_)) => Err("a private key needs its certificate: give --tls-cert too"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Registration {
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulationMode {
    On,
    Off,
}

/// Returns a parser of the names of `all`. Values of the domain know no command line.
pub fn one_of<T: Copy + Send + Sync>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.iter().map(|one| name(*one)));
    names.map(move |given| *all.iter().find(|one| name(**one) == given).expect("clap checks the name"))
}

/// Parser of a secret, or of a URL that may contain a password. Unlike clap's parsers, its errors do not quote the value.
#[derive(Clone, Debug)]
pub struct SecretParser<T> {
    pub name: &'static str,
    pub parse: fn(&str) -> Result<T, Invalid>,
}

const DATABASE_URL: SecretParser<DatabaseUrl> = SecretParser { name: "database URL", parse: postgres::parse_url };

const RELAY_URL: SecretParser<RelayUrl> = SecretParser { name: "relay URL", parse: RelayUrl::parse };

impl<T: Clone + Send + Sync + 'static> TypedValueParser for SecretParser<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        value.to_str().ok_or_else(|| Invalid("is not UTF-8".into())).and_then(self.parse).map_err(|why| {
            let message = format!("the {} {why}\n", self.name);
            let mut error = clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command);
            if let Some(arg) = arg {
                error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
            }
            error
        })
    }
}
