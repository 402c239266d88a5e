//! TLS of the HTTP client: the relay, the trace collector, `petstore healthcheck`. The TLS of the
//! listeners is in `bounded-http`.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

pub use postgres_group_commit::tls::{Authorities, Trust, client};

/// Returns a [`connector`] that trusts the authorities in `file`, or else the operating system's. For the start of the
/// process, because it may block.
#[cfg(feature = "otlp")]
pub fn connector_at_start(file: Option<String>, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    let Some(file) = file else { return connector(Authorities::of_system()?, protocols) };
    let pem = super::regular_file::read_at_start(file.as_ref()).map_err(|error| format!("{file}: {error}"))?;
    connector(Authorities::of_pem(&pem, &file)?, protocols)
}

/// Returns a [`connector`] that trusts the operating system's authorities.
pub async fn system_connector(protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    // The disk may hang.
    let authorities = spawn_blocking(Authorities::of_system).await.map_err(|error| error.to_string())?;
    connector(authorities?, protocols)
}

/// Returns a connector to servers with a certificate for their own name. Announces `protocols` by ALPN (RFC 7301).
pub fn connector(authorities: Authorities, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    let config = client(Trust::Name(authorities), protocols).map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}
