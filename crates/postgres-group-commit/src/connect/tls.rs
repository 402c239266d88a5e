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
    mode: Mode,
    authorities: Option<Source>,
}

/// Source of the trusted certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A PEM file.
    File(PathBuf),
    /// The operating system, or the file that `SSL_CERT_FILE` names.
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl TlsSettings {
    /// Removes the TLS parameters from a URL and returns the rest and the settings. Errors quote no part of the URL.
    pub fn take_from(url: &str) -> Result<(String, Self), InvalidUrl> {
        let (mut mode, mut authorities) = (None, None);
        let Some((address, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), Self { mode: Mode::Prefer, authorities }));
        };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            match name {
                "sslmode" => mode = Some(Mode::parse(&value)?),
                "sslrootcert" if value == "system" => authorities = Some(Source::System),
                "sslrootcert" => authorities = Some(Source::File(PathBuf::from(&*value))),
                _ => rest.push(pair),
            }
        }
        let is_system = authorities == Some(Source::System);
        match (mode.unwrap_or(if is_system { Mode::VerifyFull } else { Mode::Prefer }), &authorities) {
            (Mode::VerifyCa | Mode::VerifyFull, None) => Err(InvalidUrl(
                "has an sslmode that verifies certificates, which needs the authorities to trust: sslrootcert=FILE, in \
                 PEM, or sslrootcert=system"
                    .into(),
            )),
            // As in libpq: public authorities issue certificates to anybody, so the host name must be verified.
            (Mode::Disable | Mode::Prefer | Mode::Require | Mode::VerifyCa, Some(Source::System)) => {
                Err(InvalidUrl("has sslrootcert=system, which needs sslmode=verify-full".into()))
            }
            (Mode::Disable | Mode::Prefer, Some(_)) => Err(InvalidUrl(
                "has an sslrootcert, which its sslmode ignores: use verify-full or verify-ca".into(),
            )),
            // As in libpq: a root certificate file makes `require` verify.
            (Mode::Require, Some(_)) => Ok((Mode::VerifyCa, authorities)),
            (mode, _) => Ok((mode, authorities)),
        }
        .map(|(mode, authorities)| {
            let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
            (format!("{address}{query}"), Self { mode, authorities })
        })
    }

    /// The mode of tokio-postgres.
    pub const fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Returns whether [`Self::read`] reads files.
    pub const fn has_authorities(&self) -> bool {
        self.authorities.is_some()
    }

    /// Reads the authorities again, so that a renewed file takes effect with the next connection. May block.
    pub fn read(&self) -> Result<ClientConfig> {
        let authorities = self.authorities.as_ref().map(Source::read).transpose();
        let authorities = authorities.map_err(|why| Error::Failed(format!("sslrootcert: {why}"), None))?;
        let trust = match (authorities, self.mode) {
            (None, _) => Trust::Anybody,
            (Some(authorities), Mode::VerifyFull) => Trust::Name(authorities),
            (Some(authorities), _) => Trust::Authority(authorities),
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

impl Mode {
    fn parse(text: &str) -> Result<Self, InvalidUrl> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(InvalidUrl(
                    "has an unknown sslmode: use disable, prefer, require, verify-ca or verify-full".into(),
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_parameters_are_removed_from_the_url() {
        let taken = |url: &str| {
            let (url, settings) = TlsSettings::take_from(url).unwrap();
            (url, settings.mode, settings.authorities)
        };
        assert_eq!(taken("postgres://db/shop"), ("postgres://db/shop".into(), Mode::Prefer, None));
        assert_eq!(
            taken("postgres://db/shop?sslmode=verify-full&a=%20+b&sslrootcert=%2Fetc/my%20ca.pem"),
            ("postgres://db/shop?a=%20+b".into(), Mode::VerifyFull, Some(Source::File("/etc/my ca.pem".into())))
        );
        assert_eq!(taken("postgres://db/shop?sslmode=disable"), ("postgres://db/shop".into(), Mode::Disable, None));
        let with_authorities = taken("postgres://db/shop?sslrootcert=ca.pem&sslmode=require");
        assert_eq!(with_authorities.1, Mode::VerifyCa, "as in libpq");
    }

    #[test]
    fn system_authorities_imply_verify_full() {
        for query in
            ["sslrootcert=system", "sslmode=verify-full&sslrootcert=system", "sslrootcert=system&sslmode=verify-full"]
        {
            let settings = TlsSettings::take_from(&format!("postgres://db/shop?{query}")).unwrap().1;
            assert_eq!((settings.mode, settings.authorities), (Mode::VerifyFull, Some(Source::System)), "{query}");
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
