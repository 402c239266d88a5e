//! TLS to PostgreSQL: `sslmode` and `sslrootcert` of a URL, with their meaning in libpq.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, InvalidUrl, Result};
use crate::tls::{self, Authorities, Trust};

/// A TLS connection to PostgreSQL. Binds SCRAM authentication to the server's certificate (`tls-server-end-point`).
pub type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The TLS settings of a URL.
///
/// They are parsed here because tokio-postgres does not support `sslrootcert` or the modes that verify certificates.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The mode of tokio-postgres.
    pub mode: SslMode,
    authorities: Option<Source>,
    /// True if the certificate of a server must be for its own name.
    verifies_name: bool,
}

/// Source of the trusted certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A PEM file.
    File(PathBuf),
    /// The operating system, or the file that `SSL_CERT_FILE` names.
    System,
}

impl TlsSettings {
    /// Removes the TLS parameters from a URL and returns the rest and the settings. Errors quote no part of the URL.
    pub fn take_from(url: &str) -> Result<(String, Self), InvalidUrl> {
        let (mut mode, mut authorities) = (None, None);
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            match name {
                "sslmode" => mode = Some(value),
                "sslrootcert" if value == "system" => authorities = Some(Source::System),
                "sslrootcert" => authorities = Some(Source::File(PathBuf::from(&*value))),
                _ => rest.push(pair),
            }
        }
        let default = if authorities == Some(Source::System) { "verify-full" } else { "prefer" };
        let refuse = |why: &str| Err(InvalidUrl(why.into()));
        let (mode, authorities, verifies_name) = match (mode.as_deref().unwrap_or(default), authorities) {
            ("disable", None) => (SslMode::Disable, None, false),
            ("prefer", None) => (SslMode::Prefer, None, false),
            ("require", None) => (SslMode::Require, None, false),
            ("verify-full", Some(source)) => (SslMode::Require, Some(source), true),
            // As in libpq: public authorities issue certificates to anybody, so the host name must be verified.
            ("disable" | "prefer" | "require" | "verify-ca", Some(Source::System)) => {
                return refuse("has sslrootcert=system, which needs sslmode=verify-full");
            }
            // As in libpq: a root certificate file makes `require` verify.
            ("require" | "verify-ca", Some(source)) => (SslMode::Require, Some(source), false),
            ("disable" | "prefer", Some(_)) => {
                return refuse("has an sslrootcert, which its sslmode ignores: use verify-full or verify-ca");
            }
            ("verify-ca" | "verify-full", None) => {
                return refuse(
                    "has an sslmode that verifies certificates, which needs the authorities to trust: \
                     sslrootcert=FILE, in PEM, or sslrootcert=system",
                );
            }
            _ => return refuse("has an unknown sslmode: use disable, prefer, require, verify-ca or verify-full"),
        };
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        Ok((format!("{address}{query}"), Self { mode, authorities, verifies_name }))
    }

    /// Reads the authorities again, so that a renewed file takes effect with the next connection. May block.
    pub fn read(&self) -> Result<ClientConfig> {
        let trust = match &self.authorities {
            None => Trust::Anybody,
            Some(source) => {
                let trust = if self.verifies_name { Trust::Name } else { Trust::Authority };
                trust(source.read().map_err(|why| Error::Failed(format!("sslrootcert: {why}"), None))?)
            }
        };
        tls::client(trust, &[b"postgresql"]).map_err(|error| Error::Failed(error.to_string(), None))
    }
}

impl Source {
    fn read(&self) -> Result<Authorities, String> {
        match self {
            Self::File(file) => {
                let name = file.display();
                let pem = std::fs::read(file).map_err(|error| format!("{name}: {error}"))?;
                Authorities::of_pem(&pem, name)
            }
            Self::System => Authorities::of_system().map_err(|why| format!("{why}, or set sslrootcert to a file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_parameters_are_removed_from_the_url() {
        let taken = |url: &str| {
            let (url, settings) = TlsSettings::take_from(url).unwrap();
            (url, settings.mode, settings.authorities.map(|source| (source, settings.verifies_name)))
        };
        assert_eq!(taken("postgres://db/shop"), ("postgres://db/shop".into(), SslMode::Prefer, None));
        assert_eq!(
            taken("postgres://db/shop?sslmode=verify-full&a=%20+b&sslrootcert=%2Fetc/my%20ca.pem"),
            (
                "postgres://db/shop?a=%20+b".into(),
                SslMode::Require,
                Some((Source::File("/etc/my ca.pem".into()), true))
            )
        );
        assert_eq!(taken("postgres://db/shop?sslmode=disable"), ("postgres://db/shop".into(), SslMode::Disable, None));
        for mode in ["require", "verify-ca"] {
            let verified = taken(&format!("postgres://db/shop?sslrootcert=ca.pem&sslmode={mode}"));
            let authority = Some((Source::File("ca.pem".into()), false));
            assert_eq!((verified.1, verified.2), (SslMode::Require, authority), "as in libpq");
        }
    }

    #[test]
    fn system_authorities_imply_verify_full() {
        for query in
            ["sslrootcert=system", "sslmode=verify-full&sslrootcert=system", "sslrootcert=system&sslmode=verify-full"]
        {
            let settings = TlsSettings::take_from(&format!("postgres://db/shop?{query}")).unwrap().1;
            let found = (settings.mode, settings.authorities, settings.verifies_name);
            assert_eq!(found, (SslMode::Require, Some(Source::System), true), "{query}");
        }
        for mode in ["disable", "prefer", "require", "verify-ca"] {
            let why =
                TlsSettings::take_from(&format!("postgres://db/shop?sslmode={mode}&sslrootcert=system")).unwrap_err();
            assert_eq!(why.to_string(), "has sslrootcert=system, which needs sslmode=verify-full");
        }
    }

    #[test]
    fn contradictory_parameters_are_rejected() {
        for refused in [
            "sslmode=allow", "sslmode=", "sslmode", "sslmode=verify-ca", "sslmode=verify-full", "sslrootcert=ca.pem",
            "sslmode=disable&sslrootcert=ca.pem",
        ] {
            assert!(TlsSettings::take_from(&format!("postgres://db/shop?{refused}")).is_err(), "{refused}");
        }
    }
}
