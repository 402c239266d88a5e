//! TLS towards PostgreSQL: what the address asks for, and the connection that comes of it.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use percent_encoding::percent_decode_str;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

use crate::domain::Invalid;
use crate::store::{Result, StoreError};
use crate::tls::{self, Authorities, Trust};

/// What an address asks for by `sslmode` and `sslrootcert`, which mean what they mean to libpq.
///
/// tokio-postgres knows neither of the modes that verify, nor the file, so both are read here.
#[derive(Clone, Debug)]
pub struct Wanted {
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

impl Wanted {
    /// Takes what is about TLS out of a URL. Its errors repeat nothing of it.
    pub fn take_from(url: &str) -> std::result::Result<(String, Self), Invalid> {
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
            (Mode::VerifyCa | Mode::VerifyFull, None) => Err(Invalid(
                "asks for a verified certificate by its sslmode, which needs the authorities to trust: \
                 sslrootcert=FILE, in PEM, or sslrootcert=system"
                    .into(),
            )),
            // As in libpq: public authorities issue certificates to anybody, so the host name must be verified.
            (Mode::Disable | Mode::Prefer | Mode::Require | Mode::VerifyCa, Some(Source::System)) => {
                Err(Invalid("has sslrootcert=system, which needs sslmode=verify-full".into()))
            }
            (Mode::Disable | Mode::Prefer, Some(_)) => Err(Invalid(
                "has an sslrootcert, which its sslmode does not look at: verify-full does, or verify-ca".into(),
            )),
            // As libpq has it: who names authorities wants them asked.
            (Mode::Require, Some(_)) => Ok((Mode::VerifyCa, authorities)),
            (mode, _) => Ok((mode, authorities)),
        }
        .map(|(mode, authorities)| {
            let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
            (format!("{address}{query}"), Self { mode, authorities })
        })
    }

    /// What of it tokio-postgres knows.
    pub const fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Reads the authorities anew, so that a file that was renewed counts from the next connection on.
    pub fn connector(&self) -> Result<Connector> {
        let authorities = self.authorities.as_ref().map(Source::read).transpose();
        let authorities = authorities.map_err(|why| StoreError::Failed(format!("sslrootcert: {why}")))?;
        let trust = match (authorities, self.mode) {
            (None, _) => Trust::Anybody,
            (Some(authorities), Mode::VerifyFull) => Trust::Name(authorities),
            (Some(authorities), _) => Trust::Authority(authorities),
        };
        let config = tls::client(trust, b"postgresql").map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(Connector(Arc::new(config).into()))
    }
}

impl Source {
    fn read(&self) -> std::result::Result<Authorities, String> {
        match self {
            Self::File(file) => {
                let name = file.display();
                let pem = std::fs::read(file).map_err(|error| format!("{name}: {error}"))?;
                Authorities::new(tls::certificates(&pem, &name)?)
                    .ok_or_else(|| format!("{name} has no certificate that can be used"))
            }
            Self::System => Authorities::new(rustls_native_certs::load_native_certs().certs)
                .ok_or_else(|| "the system has no authorities: install ca-certificates, or name a file".into()),
        }
    }
}

impl Mode {
    fn parse(text: &str) -> std::result::Result<Self, Invalid> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(Invalid(
                    "has an sslmode that is none of disable, prefer, require, verify-ca and verify-full".into(),
                ));
            }
        })
    }
}

/// Makes TLS connections to any of the hosts of an address.
#[derive(Clone)]
pub struct Connector(TlsConnector);

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = ToHost;
    type Error = Infallible;

    /// Each host is to prove its own name. A socket of Unix has none, and speaks no TLS either.
    fn make_tls_connect(&mut self, host: &str) -> std::result::Result<ToHost, Infallible> {
        Ok(ToHost { connector: self.0.clone(), name: ServerName::try_from(host.to_owned()) })
    }
}

pub struct ToHost {
    connector: TlsConnector,
    name: std::result::Result<ServerName<'static>, InvalidDnsNameError>,
}

impl TlsConnect<Socket> for ToHost {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = self.name.map_err(io::Error::other)?;
            Ok(Stream(Box::new(self.connector.connect(name, socket).await?)))
        })
    }
}

/// Whether the server's certificate was refused, which trying again does not change.
pub fn is_refused(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// A connection to PostgreSQL through TLS.
pub struct Stream(Box<Encrypted<Socket>>);

impl TlsStream for Stream {
    /// Ties the password's proof to this very connection (SCRAM-SHA-256-PLUS): who stands in between can't pass it on.
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|certificate| end_point(certificate)) {
            Some(digest) => ChannelBinding::tls_server_end_point(digest),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

/// The hash of a certificate, by the hash function of its own signature, or SHA-256 where that is an older one
/// (RFC 5929, section 4.1). Nothing for signatures that don't name one by their identifier alone.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, … }, … }
    let (parts, _) = element(certificate)?;
    let (_, after_tbs) = element(parts)?;
    let (algorithm, _) = element(after_tbs)?;
    let (identifier, _) = element(algorithm)?;
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let of_rsa = identifier.strip_prefix(RSA);
    let of_ecdsa = identifier.strip_prefix(ECDSA);
    match (of_rsa, of_ecdsa) {
        // With MD5, SHA-1, SHA-256; with SHA-1, SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Some(Sha256::digest(certificate).to_vec()),
        (Some([12]), _) | (_, Some([3, 3])) => Some(Sha384::digest(certificate).to_vec()),
        (Some([13]), _) | (_, Some([3, 4])) => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

/// The content of the first element of some DER (X.690), and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        // 80 is of a length to be found out, which DER has not.
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_tls_is_taken_out_and_the_rest_left_as_it_is() {
        let taken = |url: &str| {
            let (url, wanted) = Wanted::take_from(url).unwrap();
            (url, wanted.mode, wanted.authorities)
        };
        assert_eq!(taken("postgres://db/shop"), ("postgres://db/shop".into(), Mode::Prefer, None));
        assert_eq!(
            taken("postgres://db/shop?sslmode=verify-full&a=%20+b&sslrootcert=%2Fetc/my%20ca.pem"),
            ("postgres://db/shop?a=%20+b".into(), Mode::VerifyFull, Some(Source::File("/etc/my ca.pem".into())))
        );
        assert_eq!(taken("postgres://db/shop?sslmode=disable"), ("postgres://db/shop".into(), Mode::Disable, None));
        let with_authorities = taken("postgres://db/shop?sslrootcert=ca.pem&sslmode=require");
        assert_eq!(with_authorities.1, Mode::VerifyCa, "as libpq has it");
    }

    #[test]
    fn system_authorities_imply_verify_full() {
        for query in
            ["sslrootcert=system", "sslmode=verify-full&sslrootcert=system", "sslrootcert=system&sslmode=verify-full"]
        {
            let wanted = Wanted::take_from(&format!("postgres://db/shop?{query}")).unwrap().1;
            assert_eq!((wanted.mode, wanted.authorities), (Mode::VerifyFull, Some(Source::System)), "{query}");
        }
        for mode in ["disable", "prefer", "require", "verify-ca"] {
            let why = Wanted::take_from(&format!("postgres://db/shop?sslmode={mode}&sslrootcert=system")).unwrap_err();
            assert_eq!(why.to_string(), "has sslrootcert=system, which needs sslmode=verify-full");
        }
    }

    #[test]
    fn a_mode_and_a_file_that_do_not_fit_are_refused() {
        for refused in [
            "sslmode=allow",
            "sslmode=",
            "sslmode",
            "sslmode=verify-ca",
            "sslmode=verify-full",
            "sslrootcert=ca.pem",
            "sslmode=disable&sslrootcert=ca.pem",
        ] {
            assert!(Wanted::take_from(&format!("postgres://db/shop?{refused}")).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_hash_of_a_certificate_is_that_of_its_signature() {
        let certificate = |identifier: &[u8]| {
            let algorithm = [&[0x30, identifier.len() as u8 + 2, 0x06, identifier.len() as u8], identifier].concat();
            // A body long enough for its length to take two bytes.
            let body = [&[0x30, 0x82, 0x01, 0x00][..], &[0; 256]].concat();
            let parts = [body, algorithm, vec![0x03, 0x01, 0x00]].concat();
            [&[0x30, 0x82][..], &(parts.len() as u16).to_be_bytes(), &parts].concat()
        };
        let length = |identifier: &[u8]| end_point(&certificate(identifier)).map(|digest| digest.len());
        let rsa = |last| [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last];
        assert_eq!(length(&rsa(5)), Some(32), "SHA-1 is too weak, so SHA-256");
        assert_eq!((length(&rsa(11)), length(&rsa(12)), length(&rsa(13))), (Some(32), Some(48), Some(64)));
        assert_eq!(length(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03]), Some(48));
        assert_eq!(length(&[0x2b, 0x65, 0x70]), None, "Ed25519 names no hash");
        let whole = certificate(&rsa(11));
        assert_eq!(end_point(&whole), Some(Sha256::digest(&whole).to_vec()));
        for cut in 0..whole.len() - 1 {
            assert!(end_point(&whole[..cut]).is_none(), "{cut}");
        }
    }
}
