//! URL of a PostgreSQL database.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::limits::{DEFAULT_TIMEOUT, Limits};
use super::tls::TlsSettings;
use crate::error::InvalidUrl;

/// Idle time after which TCP keepalive probes start, one each second.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Maximum time for the peer to acknowledge sent data before the connection is closed.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// A URL `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?PARAMETERS` with its timeout. Displayed without
/// its password.
///
/// The parameters are those of tokio-postgres, and of libpq:
///
/// - `sslmode`: `disable`, `prefer`, `require`, `verify-ca` or `verify-full`. Only the last two verify the server. The default,
///   `prefer`, is not encrypted if the server has no TLS.
/// - `sslrootcert`: the authorities to trust, a file in PEM, or `system`. Needed to verify. `system` implies `verify-full`.
/// - `connect_timeout`: seconds for a connection to one address. 10/18 of [`Self::timeout`] by default.
#[derive(Clone)]
pub struct DatabaseUrl {
    config: Config,
    /// `config` for each host alone.
    pub(super) hosts: Vec<Config>,
    pub(super) tls: TlsSettings,
    /// Parameters to display, as given.
    parameters: Vec<String>,
    /// Timeout of a read, a write or a transaction, by default 1.8 s. The timeouts of their parts are fractions of it, such as
    /// 15/18 for a commit. At least 0.1 s.
    pub timeout: Duration,
}

impl DatabaseUrl {
    /// Ignores white space around the URL. Errors quote no part of `text`, because any part may be a piece of the password.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        let text = text.trim();
        let malformed = || {
            InvalidUrl("is not postgres://USER:PASSWORD@HOST:PORT/DATABASE (separate several HOST:PORT by commas; percent-encode special characters, as in %40)".into())
        };
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or_else(malformed)?;
        // tokio-postgres parses everything before the first @ as user and password. With a second @, it would parse a
        // piece of the password as the host, which is displayed.
        if let Some((credentials, address)) = rest.split_once('@')
            && (credentials.contains(['/', '?']) || address.contains('@'))
        {
            return Err(malformed());
        }
        let (address, tls) = TlsSettings::take_from(text)?;
        let why = || unusable_parameter(&address).unwrap_or_else(malformed);
        let configure = |text: &str| configure(text, tls.mode).ok_or_else(why);
        let config = configure(&address)?;
        let hosts = split_hosts(&address).iter().map(|text| configure(text)).collect::<Result<_, _>>()?;
        let query = text.split_once('?').map_or("", |(_, query)| query).split('&');
        let parameters = query.filter(|pair| DISPLAYED.iter().any(|name| pair.starts_with(name)));
        Ok(Self { config, hosts, tls, parameters: parameters.map(str::to_owned).collect(), timeout: DEFAULT_TIMEOUT })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits(self.timeout)
    }
}

/// Parameters to display: those that decide how to connect. Others may have a piece of a misplaced password.
const DISPLAYED: [&str; 6] =
    ["channel_binding=", "connect_timeout=", "hostaddr=", "sslmode=", "sslnegotiation=", "sslrootcert="];

/// Names the first parameter that makes an address unusable. `None` if there is none, or if its name may be part of a
/// password.
fn unusable_parameter(address: &str) -> Option<InvalidUrl> {
    let (hosts, query) = address.split_once('?')?;
    hosts.parse::<Config>().ok()?;
    // A password that contains `&` is cut off there, and its rest looks like a parameter.
    let mut pairs = query.split('&').take_while(|pair| !pair.starts_with("password="));
    let unusable = pairs.find(|pair| format!("postgres://localhost?{pair}").parse::<Config>().is_err())?;
    let name = unusable.split_once('=').map_or(unusable, |(name, _)| name);
    let is_plain = name.len() <= 32 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
    is_plain.then(|| InvalidUrl(format!("has the parameter {name}, which is not supported, or not with its value")))
}

/// Parses a URL and adds the timeouts.
fn configure(text: &str, mode: SslMode) -> Option<Config> {
    let mut config: Config = text.parse().ok()?;
    // tokio-postgres takes the list of a parameter for one host.
    let is_list = |pair: &str| pair.starts_with("host=") && pair.contains(',');
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() || text.split(['?', '&']).any(is_list) {
        return None;
    }
    // Unix sockets have no TLS in any mode. `hostaddr` alone gives no name to verify, and tokio-postgres does not
    // use TLS without one.
    let is_unix = |host: &Host| matches!(host, Host::Unix(_));
    let nameless = config.get_hosts().is_empty();
    config.ssl_mode(match mode {
        SslMode::Prefer if nameless => SslMode::Disable,
        _ if !nameless && config.get_hosts().iter().all(is_unix) => SslMode::Disable,
        mode => mode,
    });
    // Servers that accept no writes are skipped, even a single one: a standby may return old data.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(Duration::from_secs(1)).keepalives_retries(3);
    config.tcp_user_timeout(TCP_USER_TIMEOUT);
    Some(config)
}

/// Splits a URL into one for each host. A URL with `hostaddr` is not split, because its hosts are only names.
fn split_hosts(text: &str) -> Vec<String> {
    let start = text.find("://").map_or(0, |scheme| scheme + 3);
    let end = text[start..].find(['/', '?']).map_or(text.len(), |length| start + length);
    let start = text[start..end].rfind('@').map_or(start, |at| start + at + 1);
    if text[end..].contains("hostaddr=") || text[end..].contains("host=") {
        return vec![text.to_owned()];
    }
    text[start..end].split(',').map(|host| format!("{}{host}{}", &text[..start], &text[end..])).collect()
}

/// Assembled from the parsed parts and the parameters in `DISPLAYED`, so that a misplaced secret is not displayed.
impl std::fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            let password = if self.config.get_password().is_some() { ":[hidden]" } else { "" };
            write!(f, "{user}{password}@")?;
        }
        for (position, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            let ports = self.config.get_ports();
            let port = ports.get(position).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) if name.contains(':') => write!(f, "{comma}[{name}]:{port}")?,
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
                Host::Unix(folder) => write!(f, "{comma}{}:{port}", folder.display())?,
            }
        }
        if let Some(name) = self.config.get_dbname() {
            write!(f, "/{name}")?;
        }
        for (position, pair) in self.parameters.iter().enumerate() {
            write!(f, "{}{pair}", if position > 0 { "&" } else { "?" })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_are_parsed_and_the_password_is_hidden() {
        let url = "postgres://ada:s%40cret@db1:5433,db2:5434/shop?application_name=s%40cret&sslmode=require&connect_timeout=3";
        let url = DatabaseUrl::parse(url).unwrap();
        let displayed = "postgres://ada:[hidden]@db1:5433,db2:5434/shop?sslmode=require&connect_timeout=3";
        assert_eq!(url.to_string(), displayed);
        assert_eq!(format!("{url:?}"), url.to_string());
        assert_eq!(DatabaseUrl::parse("postgresql://db/shop").unwrap().to_string(), "postgres://db:5432/shop");
        assert_eq!(DatabaseUrl::parse("postgres://[::1]").unwrap().to_string(), "postgres://[::1]:5432");
    }

    #[test]
    fn each_host_has_its_own_configuration() {
        let hosts = |text| {
            let url = DatabaseUrl::parse(text).unwrap();
            let name = |config: &Config| match &config.get_hosts()[0] {
                Host::Tcp(name) => (name.clone(), config.get_ports().to_vec(), config.get_hosts().len()),
                Host::Unix(folder) => panic!("{}", folder.display()),
            };
            url.hosts.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(
            hosts("postgres://ada:s%40cret@db1:5433,db2:5434/shop"),
            [("db1".to_owned(), vec![5433], 1), ("db2".to_owned(), vec![5434], 1)]
        );
        assert_eq!(hosts("postgres://db"), [("db".to_owned(), vec![5432], 1)]);
        assert_eq!(hosts("postgres:///shop?host=db1").len(), 1);
        let nameless = DatabaseUrl::parse("postgres:///shop?hostaddr=127.0.0.1").unwrap();
        assert_eq!(nameless.hosts[0].get_ssl_mode(), SslMode::Disable, "TLS needs a name");
    }

    #[test]
    fn unusable_parameters_are_named() {
        let why = |text: &str| DatabaseUrl::parse(text).unwrap_err().to_string();
        for (query, name) in [
            ("sslcert=/etc/s3cret.pem", "sslcert"),
            ("sslmode=require&sslkey=s3cret&application_name=shop", "sslkey"),
            ("connect_timeout=s3cret", "connect_timeout"),
            ("colour=s3cret", "colour"),
        ] {
            let why = why(&format!("postgres://ada:s3cret@db/shop?{query}"));
            let named = why.starts_with(&format!("has the parameter {name}, which is not supported"));
            assert!(named && !why.contains("s3cret"), "{why}");
        }
        assert!(why("postgres://db?sslmode=prefer&sslrootcert=own.pem").ends_with("use verify-full or verify-ca"));
        assert!(why("postgres://db?sslmode=require&sslrootcert=system").ends_with("which needs sslmode=verify-full"));
        assert!(why("postgres://db?sslmode=verify-ca").contains("which needs the authorities to trust"));
        for secret in ["password=top&secret", "password=top&secret=x", "s3cret", "S3CRET=x"] {
            let why = why(&format!("postgres://db/shop?{secret}"));
            assert!(why.starts_with("is not postgres://"), "{why}");
        }
    }

    #[test]
    fn white_space_around_a_url_is_ignored() {
        let url = DatabaseUrl::parse(" postgres://ada@db/shop?sslmode=disable\r\n").unwrap();
        assert_eq!(url.to_string(), "postgres://ada@db:5432/shop?sslmode=disable");
    }

    #[test]
    fn errors_quote_nothing_of_the_url() {
        for refused in [
            "",
            "s3cret",
            "mysql://ada:s3cret@db/shop",
            "host=db password=s3cret",
            "postgres://",
            "postgres://ada:s3cret@db:port/shop",
            "postgres://ada:top@s3cret@db/shop",
            "postgres://ada:top@s3cret/s3cret@db/shop",
            "postgres://ada:top@db,s3cret@db/shop",
            "postgres://db/shop?user=ada&password=top@s3cret",
            "postgres://db/shop@s3cret",
            "postgres:///shop?host=db,s3cret",
            "postgres://ada:top/s3cret@db/shop",
            "postgres://ada:s3cret@db/shop?colour=s3cret",
            "postgres://ada:s3cret@db/shop?sslmode=s3cret",
            "postgres://ada:s3cret@db/shop?sslmode=verify-full",
        ] {
            let why = DatabaseUrl::parse(refused).expect_err(refused).to_string();
            assert!(!why.contains("s3cret"), "{why}");
            assert_eq!(why.contains("sslmode"), refused.contains("sslmode"), "{refused}: {why}");
        }
    }
}
