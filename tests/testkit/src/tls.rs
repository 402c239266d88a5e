//! Certificates made by openssl, and a TLS client that trusts one of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate and its private key, in files.
pub struct Certificate {
    pub file: PathBuf,
    pub key: PathBuf,
    /// The certificate as it was made, even if the file has changed.
    pub der: CertificateDer<'static>,
}

impl Certificate {
    /// A self-signed server certificate in `NAME.pem` and `NAME.key`. `names` as in `DNS:localhost,IP:127.0.0.1`.
    pub fn of_server(folder: &Path, name: &str, names: &str) -> Self {
        Self::make(folder, name, &server_extensions(names), None)
    }

    /// A self-signed server certificate for `localhost` and 127.0.0.1.
    pub fn of_localhost(folder: &Path, name: &str) -> Self {
        Self::of_server(folder, name, "DNS:localhost,IP:127.0.0.1")
    }

    pub fn of_authority(folder: &Path, name: &str) -> Self {
        Self::make(folder, name, "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign", None)
    }

    /// A server certificate signed by this authority.
    pub fn sign(&self, folder: &Path, name: &str, names: &str) -> Self {
        Self::make(folder, name, &server_extensions(names), Some(self))
    }

    /// A certificate with extensions as in a configuration of openssl, self-signed or signed by an authority.
    pub fn make(folder: &Path, name: &str, extensions: &str, authority: Option<&Self>) -> Self {
        let (file, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        let config = folder.join(format!("{name}.cnf"));
        let text = format!("[req]\ndistinguished_name=dn\nx509_extensions=ext\n[dn]\n[ext]\n{extensions}\n");
        std::fs::write(&config, text).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.arg("-config").arg(config).args(["-subj", &format!("/CN={name}")]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&file);
        if let Some(authority) = authority {
            openssl.arg("-CA").arg(&authority.file).arg("-CAkey").arg(&authority.key);
        }
        let made = openssl.output().expect("openssl is not installed: run scripts/test, which installs it");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let der = CertificateDer::from_pem_file(&file).unwrap();
        Self { file, key, der }
    }

    /// The configuration of a server that presents this certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(config.with_single_cert(vec![self.der.clone()], key).unwrap())
    }

    /// Copies this certificate and its key over the files of another.
    pub fn replace(&self, other: &Self) {
        std::fs::copy(&self.key, &other.key).unwrap();
        std::fs::copy(&self.file, &other.file).unwrap();
    }

    /// Connects to a server that must present this certificate.
    pub async fn connect(&self, address: SocketAddr) -> TlsStream<TcpStream> {
        self.try_connect(address, rustls::ALL_VERSIONS).await.unwrap()
    }

    /// Returns whether the server presents this certificate to new connections.
    pub async fn is_presented(&self, address: SocketAddr) -> bool {
        self.try_connect(address, rustls::ALL_VERSIONS).await.is_ok()
    }

    pub async fn try_connect(
        &self,
        address: SocketAddr,
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(self.client(versions))).connect(address.ip().into(), stream).await
    }

    fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

fn server_extensions(names: &str) -> String {
    format!("basicConstraints=critical,CA:FALSE\nsubjectAltName={names}")
}
