//! TLS of clients: which servers they trust, in the terms of libpq's `sslmode`. A program can use it for its other clients, too.

use std::fmt::Display;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The servers that a client trusts.
#[derive(Debug)]
pub enum Trust {
    /// Any server. The connection is encrypted, but the peer is unknown.
    Anybody,
    /// Servers with a certificate from one of these authorities, for any name.
    Authority(Authorities),
    /// Servers with a certificate from one of these authorities, for their own name.
    Name(Authorities),
}

/// Certificates of trusted authorities, and of servers that are trusted without an authority.
#[derive(Debug)]
pub struct Authorities {
    roots: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Ignores unusable certificates, which bundles of many authorities contain. `None` if none is usable.
    fn new(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        (usable > 0).then_some(Self { roots, certificates })
    }

    /// Parses the certificates of a PEM file.
    ///
    /// # Errors
    ///
    /// Fails if none is usable. The error names `file`.
    pub fn of_pem(pem: &[u8], file: impl Display) -> Result<Self, String> {
        // The parser would skip a certificate that does not begin a line.
        let pem =
            String::from_utf8_lossy(pem).replace('\u{feff}', "").replace("----------BEGIN ", "-----\n-----BEGIN ");
        let pem: String = pem.lines().flat_map(|line| [line.trim_start(), "\n"]).collect();
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        // The error would quote the file, which may have a key, too.
        let found = found.map_err(|_| format!("{file} is not valid PEM"))?;
        Self::new(found).ok_or_else(|| format!("{file} has no usable certificate in PEM"))
    }

    /// Returns the operating system's authorities, or those of the file that `SSL_CERT_FILE` names. May block.
    ///
    /// # Errors
    ///
    /// Fails if there are none.
    pub fn of_system() -> Result<Self, String> {
        let found = rustls_native_certs::load_native_certs();
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let none =
            || format!("the system has no certificate authorities{why}: install ca-certificates or set SSL_CERT_FILE");
        Self::new(found.certs).ok_or_else(none)
    }
}

/// Returns a configuration without client certificates, which announces `protocols` by ALPN (RFC 7301).
///
/// # Errors
///
/// Fails if no TLS version is available.
pub fn client(trust: Trust, protocols: &[&[u8]]) -> Result<ClientConfig, rustls::Error> {
    // Named, so that nothing depends on the default of the process.
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier { trust, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (Trust::Authority(authorities) | Trust::Name(authorities)) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let parsed = ParsedCertificate::try_from(certificate)?;
        // A server's own certificate in the file is trusted like an authority's. Tools mark self-signed certificates as
        // authorities, which the verification below rejects for a server.
        if !authorities.certificates.contains(certificate) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &authorities.roots, intermediates, now, algorithms)?;
        }
        if matches!(self.trust, Trust::Name(_)) {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.trust {
            // The signature proves nothing about an unverified certificate, and some old certificates cannot be parsed.
            Trust::Anybody => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.trust {
            Trust::Anybody => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
