//! TLS of the HTTP client: the relay, the trace collector, `petstore healthcheck`. The TLS of the
//! listeners is in `bounded-http`.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

pub use postgres_group_commit::tls::Trust;
use postgres_group_commit::tls::{Authorities, client};

/// Returns a [`connector`] that trusts the authorities in `file`, or else the operating system's. For the start of the
/// process, because it may block.
#[cfg(feature = "otlp")]
pub fn connector_at_start(file: Option<String>) -> Result<TlsConnector, String> {
    let Some(file) = file else { return connector(Trust::Name(Authorities::of_system()?)) };
    let pem = super::regular_file::read_at_start(file.as_ref()).map_err(|error| format!("{file}: {error}"))?;
    connector(Trust::Name(Authorities::of_pem(&pem, &file)?))
}

/// Returns a [`connector`] that trusts the operating system's authorities.
pub async fn system_connector() -> Result<TlsConnector, String> {
    // The disk may hang.
    let authorities = spawn_blocking(Authorities::of_system).await.map_err(|error| error.to_string())?;
    connector(Trust::Name(authorities?))
}

/// Returns a connector to servers that `trust` accepts. Announces the client's protocol by ALPN (RFC 7301).
pub fn connector(trust: Trust) -> Result<TlsConnector, String> {
    let config = client(trust, &[b"http/1.1"]).map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}
