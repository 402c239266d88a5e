//! The certificate of the listeners, reloaded when it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, fs, io};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Interval of checks for changed files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A certificate and its key. Cheap to clone. Connections keep the certificate that they began with.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

/// Why a certificate cannot be used. For the operator: names the file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCertificate(String);

struct Shared {
    certificate: PathBuf,
    key: PathBuf,
    /// The files at the start, so that a change before the first check counts.
    loaded: Files,
    /// The configuration, and when its certificate expires, in seconds since 1970.
    current: Mutex<(Arc<ServerConfig>, u64)>,
    is_rejected: AtomicBool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.0.certificate).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a certificate with its chain, and its private key, both in PEM. Blocks while the files are read, which may be
    /// pipes.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or they do not match.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, InvalidCertificate> {
        let loaded = Files::read(certificate, key, |file| fs::read(file)).map_err(InvalidCertificate)?;
        let current = Mutex::new(loaded.config(certificate, key).map_err(InvalidCertificate)?);
        let (certificate, key, is_rejected) = (certificate.to_owned(), key.to_owned(), AtomicBool::new(false));
        Ok(Self(Arc::new(Shared { certificate, key, loaded, current, is_rejected })))
    }

    /// Returns when the first certificate of the chain expires, in seconds since 1970. 0 if one cannot be parsed.
    pub fn expiry(&self) -> u64 {
        self.0.current.lock().1
    }

    /// Returns whether the files have changed and could not be used, so that the certificate before them still is.
    pub fn is_rejected(&self) -> bool {
        self.0.is_rejected.load(Ordering::Relaxed)
    }

    /// Returns the acceptor for a new connection, which keeps its certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0.current.lock().0).into()
    }

    /// Reloads the certificate when the files change, checked every 2 s, and at once on SIGHUP. Never ends. Until the
    /// future is polled first, and from then on, SIGHUP does not end the process.
    ///
    /// The certificate and its key are two files and cannot be replaced in one step. A change therefore counts once two
    /// consecutive checks find the same content.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with I/O.
    pub fn follow(self) -> impl Future<Output = ()> {
        // Registered before the future runs, because SIGHUP ends a process that does not handle it.
        let mut hangups = signal(SignalKind::hangup()).expect("SIGHUP can be handled");
        let mut known = Ok(self.0.loaded.clone());
        let mut last = known.clone();
        async move {
            loop {
                let is_requested = tokio::select! {
                    () = sleep(CHECK_INTERVAL) => false,
                    _ = hangups.recv() => true,
                };
                let found = self.read().await;
                if is_requested || (found == last && found != known) {
                    self.use_files(&found);
                    known.clone_from(&found);
                }
                last = found;
            }
        }
    }

    fn use_files(&self, found: &Result<Files, String>) {
        let Shared { certificate, key, current, is_rejected, .. } = &*self.0;
        let config = found.as_ref().map_err(Clone::clone).and_then(|files| files.config(certificate, key));
        is_rejected.store(config.is_err(), Ordering::Relaxed);
        match config {
            Ok(config) => {
                *current.lock() = config;
                tracing::info!(file = %certificate.display(), "certificate reloaded");
            }
            Err(why) => tracing::error!(why, "cannot use the new certificate, keeping the old one"),
        }
    }

    /// Reads the files on a blocking thread, because the disk may be slow.
    async fn read(&self) -> Result<Files, String> {
        let shared = Arc::clone(&self.0);
        let read = move || Files::read(&shared.certificate, &shared.key, read_regular);
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|error| Err(error.to_string()))
    }
}

const USABLE: &str = "use a certificate of X.509 version 3, first in its file, with its key: RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519";

/// The contents of the two files.
#[derive(Clone, PartialEq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Path, key: &Path, read: fn(&Path) -> io::Result<Vec<u8>>) -> Result<Self, String> {
        let read = |file: &Path| read(file).map_err(|error| format!("{}: {error}", file.display()));
        Ok(Self { certificate: read(certificate)?, key: read(key)? })
    }

    /// Returns the configuration, and when its certificate expires.
    fn config(&self, certificate: &Path, key: &Path) -> Result<(Arc<ServerConfig>, u64), String> {
        let (certificate, key) = (certificate.display(), key.display());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&lines(&self.certificate)).collect();
        // The error would quote the file, and some files have the key, too.
        let chain = chain.map_err(|_| format!("{certificate} is not valid PEM"))?;
        if chain.is_empty() {
            return Err(format!("{certificate} has no certificate in PEM"));
        }
        let expiry = expiry(&chain);
        let private = PrivateKeyDer::from_pem_slice(&lines(&self.key))
            .map_err(|_| format!("{key} has no private key in PEM; keys with a passphrase are not supported"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
        let mut config = config
            .with_single_cert(chain, private)
            .map_err(|error| format!("cannot use {certificate} with {key}: {error}; {USABLE}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        // Clients keep the state of their sessions, so memory does not grow with their number.
        config.ticketer = Ticketer::new().map_err(|error| error.to_string())?;
        Ok((Arc::new(config), expiry))
    }
}

/// Lets each part of a PEM file begin a line. The parser would skip one that is indented, follows a byte order mark, or was
/// joined to a file without a line break at its end.
fn lines(pem: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(pem).replace('\u{feff}', "").replace("----------BEGIN ", "-----\n-----BEGIN ");
    text.lines().flat_map(|line| [line.trim_start(), "\n"]).collect::<String>().into_bytes()
}

/// Reads a file. A plain read of a named pipe might wait for ever.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Returns when the first of the certificates expires, in seconds since 1970. 0 if one cannot be parsed.
fn expiry(chain: &[CertificateDer<'_>]) -> u64 {
    let expiry = |der: &CertificateDer<'_>| {
        let certificate = Certificate::from_der(der).ok()?;
        Some(certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
    };
    chain.iter().map(|der| expiry(der).unwrap_or_default()).min().unwrap_or_default()
}
