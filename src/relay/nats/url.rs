//! URL of NATS servers.

use std::net::Ipv6Addr;

use axum::http::uri::Authority;
use percent_encoding::percent_decode_str;

use crate::domain::Secret;

const DEFAULT_PORT: u16 = 4222;

/// A URL `nats://USER:PASSWORD@HOST:PORT,HOST:PORT`, or `tls://…`. Displayed without its password.
#[derive(Clone)]
pub struct NatsUrl {
    scheme: &'static str,
    /// `HOST:PORT` of each server.
    hosts: Vec<String>,
    credentials: Option<Credentials>,
}

#[derive(Clone)]
pub enum Credentials {
    Token(Secret),
    Password { user: String, password: Secret },
}

impl NatsUrl {
    /// `None` if `text` is not such a URL.
    pub fn parse(text: &str) -> Option<Self> {
        let scheme = ["nats://", "tls://"].into_iter().find(|scheme| text.starts_with(scheme))?;
        let rest = &text[scheme.len()..];
        let (credentials, hosts) = match rest.split_once('@') {
            // Credentials per server are not supported: the first server would be parsed as credentials.
            Some((credentials, _)) if credentials.contains([',', '/']) => return None,
            Some((credentials, hosts)) => (Some(Credentials::read(credentials)?), hosts),
            None => (None, rest),
        };
        let hosts = hosts.split(',').map(host_and_port).collect::<Option<_>>()?;
        Some(Self { scheme, hosts, credentials })
    }

    /// `HOST:PORT` of each server, at least one.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub fn requires_tls(&self) -> bool {
        self.scheme == "tls://"
    }

    pub const fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

/// Adds the port to a host without one. `None` if the host is not a name or an IP address.
fn host_and_port(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    let host = authority.host();
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)),
    };
    let port = match text.strip_prefix(host)? {
        "" => DEFAULT_PORT,
        _ => authority.port_u16()?,
    };
    is_host.then(|| format!("{host}:{port}"))
}

impl Credentials {
    /// Parses `USER:PASSWORD` or a token.
    fn read(text: &str) -> Option<Self> {
        let decode = |text: &str| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
        match text.split_once(':') {
            Some((user, password)) => {
                Some(Self::Password { user: decode(user)?, password: Secret::new(decode(password)?) })
            }
            None => Some(Self::Token(Secret::new(decode(text)?))),
        }
    }
}

/// Assembled from the parsed parts, so that a misplaced secret is not displayed.
impl std::fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.scheme)?;
        match &self.credentials {
            None => {}
            Some(Credentials::Token(_)) => f.write_str("[hidden]@")?,
            Some(Credentials::Password { user, .. }) => write!(f, "{user}:[hidden]@")?,
        }
        f.write_str(&self.hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_has_all_servers_and_no_secret() {
        let shown = |text| NatsUrl::parse(text).unwrap().to_string();
        assert_eq!(shown("nats://127.0.0.1"), "nats://127.0.0.1:4222");
        assert_eq!(shown("tls://n1:4443,[::1]:4444"), "tls://n1:4443,[::1]:4444");
        assert_eq!(shown("nats://ada:s%40cr%2Cet@n1,n2:4223"), "nats://ada:[hidden]@n1:4222,n2:4223");
        assert_eq!(shown("nats://s3cret@n1:4222"), "nats://[hidden]@n1:4222");
        let url = NatsUrl::parse("nats://ada:s%40cret@n1").unwrap();
        let Some(Credentials::Password { user, password }) = url.credentials else { panic!("there is a password") };
        assert_eq!((&*user, password.expose()), ("ada", "s@cret"));
    }
}
