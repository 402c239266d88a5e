//! An HTTP/1.1 client for one collector, with a persistent connection.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::http::header::HOST;
use axum::http::uri::Uri;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::{self, Authorities, Trust};

/// Maximum size of a response, which is discarded. The connection is reusable only after it.
const MAX_RESPONSE: usize = 64 << 10;

pub struct Client {
    endpoint: Uri,
    headers: HeaderMap,
    /// `None` unless the endpoint is `https`.
    tls: Option<TlsConnector>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Fails if a certificate is unusable, or missing for `https`.
    pub fn new(endpoint: Uri, mut headers: HeaderMap, certificate: Option<&str>) -> Result<Self, String> {
        let host = endpoint.authority().map_or("", |authority| authority.as_str());
        // Without user information.
        let host = host.rsplit('@').next().unwrap_or_default();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|error| error.to_string())?);
        let tls = match (endpoint.scheme_str(), certificate) {
            (Some("https"), Some(file)) => Some(connector(file)?),
            (Some("https"), None) => {
                return Err("an https:// endpoint needs OTEL_EXPORTER_OTLP_CERTIFICATE, a file with the certificate \
                     authorities to trust; on Debian, /etc/ssl/certs/ca-certificates.crt"
                    .into());
            }
            _ => None,
        };
        Ok(Self { endpoint, headers, tls, connection: None })
    }

    pub async fn post(&mut self, body: Bytes) -> io::Result<StatusCode> {
        // The collector may have closed the connection, which shows only now.
        let kept = match self.connection.take() {
            Some(mut kept) => kept.ready().await.is_ok().then_some(kept),
            None => None,
        };
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let path = self.endpoint.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path).body(Full::new(body)).map_err(io::Error::other)?;
        *request.headers_mut() = self.headers.clone();
        let response = connection.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(io::Error::other)?;
        self.connection = Some(connection);
        Ok(status)
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let host = self.endpoint.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let default = if self.tls.is_some() { 443 } else { 80 };
        let stream = TcpStream::connect((host, self.endpoint.port_u16().unwrap_or(default))).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => open(stream).await,
            Some(connector) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                open(connector.connect(name, stream).await?).await
            }
        }
    }
}

fn connector(file: &str) -> Result<TlsConnector, String> {
    let pem = tls::read_at_start(Path::new(file))?;
    let authorities =
        Authorities::new(tls::certificates(&pem, file)?).ok_or_else(|| format!("{file} has no usable certificate"))?;
    let config = tls::client(Trust::Name(authorities), b"http/1.1").map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn open(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // The next request reports how the connection ended.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}
