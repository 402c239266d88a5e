//! The certificate of the listeners, which may be renewed while the service runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::ProducesTickets;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::tls;

/// How often to look whether the files have changed.
const LOOK: Duration = Duration::from_secs(2);

/// What new connections are answered with; cheap to clone.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a certificate with its chain, and its private key. The error is for a person.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, String> {
        let config = Files::read(certificate, key)?.config(certificate, key)?;
        let current = Mutex::new(Arc::new(config));
        Ok(Self(Arc::new(Shared { certificate: certificate.to_owned(), key: key.to_owned(), current })))
    }

    /// For one connection, which keeps the certificate that it began with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0.current.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }

    /// Takes each new certificate that appears in the files, at once on SIGHUP. Never ends.
    ///
    /// A certificate and its key are two files, and are not written in one moment. So what has changed counts only once
    /// it was the same at two looks in a row.
    pub async fn follow(&self) {
        let mut hangups = signal(SignalKind::hangup()).ok();
        let mut known = self.look().await;
        let mut last_look = known.clone();
        loop {
            let hangup = async {
                match &mut hangups {
                    Some(hangups) => _ = hangups.recv().await,
                    None => std::future::pending().await,
                }
            };
            let asked = tokio::select! {
                () = sleep(LOOK) => false,
                () = hangup => true,
            };
            let found = self.look().await;
            if asked || (found == last_look && found != known) {
                self.take(&found);
                known.clone_from(&found);
            }
            last_look = found;
        }
    }

    fn take(&self, found: &Result<Files, String>) {
        let Shared { certificate, key, current } = &*self.0;
        match found.as_ref().map_err(Clone::clone).and_then(|files| files.config(certificate, key)) {
            Ok(config) => {
                *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!(file = %certificate.display(), "the certificate was read again; new connections get it");
            }
            Err(why) => tracing::error!(why, "the new certificate can't be used; the old one stays"),
        }
    }

    /// On a thread where waiting for a disk, or a network behind it, holds up nobody.
    async fn look(&self) -> Result<Files, String> {
        let shared = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || Files::read(&shared.certificate, &shared.key)).await;
        read.unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// What the two files hold.
#[derive(Clone, PartialEq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
        Ok(Self { certificate: read(certificate)?, key: read(key)? })
    }

    fn config(&self, certificate: &Path, key: &Path) -> Result<ServerConfig, String> {
        let (certificate, key) = (certificate.display(), key.display());
        let chain = tls::certificates(&self.certificate, &certificate)?;
        let private = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| format!("{key} has no private key in PEM; one with a passphrase can't be read"))?;
        let config = ServerConfig::builder_with_details(tls::provider(), Arc::new(tls::Time));
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
        let mut config = config
            .with_single_cert(chain, private)
            .map_err(|error| format!("{certificate} and {key} can't be used together: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Clients keep the state of their sessions themselves: nothing here grows with their number.
        if tls::Time::is_before_1970() {
            return Err("the system clock is before 1970".into());
        }
        config.ticketer = Arc::new(Tickets(Ticketer::new().map_err(|error| error.to_string())?));
        Ok(config)
    }
}

/// Issues session tickets. Issues none while the system clock is before 1970, because rustls would panic.
#[derive(Debug)]
struct Tickets(Arc<dyn ProducesTickets>);

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if tls::Time::is_before_1970() { None } else { self.0.encrypt(plain) }
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        if tls::Time::is_before_1970() { None } else { self.0.decrypt(cipher) }
    }
}
