//! An HTTP/1.1 client for one server, with persistent connections: the collector of traces, the endpoint of messages.

use std::io;
use std::time::Duration;

use axum::http::header::HOST;
use axum::http::response::Parts;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderValue, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// Maximum size of a response's head, and of its body, which is discarded. The smallest that hyper allows.
const MAX_RESPONSE: usize = 8 << 10;

/// Maximum time for the body. A connection is reusable only after it.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time to connect to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Age at which a connection is no longer reused, so that changes of the server's name take effect.
const MAX_AGE: Duration = Duration::from_mins(1);

pub struct Client {
    host: String,
    port: u16,
    path: PathAndQuery,
    /// The header `Host`.
    authority: HeaderValue,
    /// `None` for `http`.
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    opened_at: Instant,
}

impl Client {
    /// Creates a client that ignores user information in `url`.
    pub fn new(url: &Uri, tls: Option<TlsConnector>) -> Result<Self, String> {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let authority = authority.rsplit('@').next().unwrap_or_default();
        Ok(Self {
            host: url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 }),
            path: url.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
            authority: HeaderValue::from_str(authority).map_err(|error| error.to_string())?,
            tls,
            idle: Mutex::default(),
        })
    }

    /// Sends a request, and returns the head of the response. Fails if it does not arrive within `limit`.
    ///
    /// Repeats it once if a connection that was kept fails, because the server may have closed it at the same time.
    pub async fn post(&self, headers: HeaderMap, body: Bytes, limit: Duration) -> io::Result<Parts> {
        let exchange = async {
            if let Some(kept) = self.kept().await
                && let Ok(exchanged) = self.exchange(kept, headers.clone(), body.clone()).await
            {
                return Ok(exchanged);
            }
            self.exchange(self.connect().await?, headers, body).await
        };
        let late = |_| Err(io::Error::other(format!("no response within {limit:?}")));
        let (connection, response) = timeout(limit, exchange).await.unwrap_or_else(late)?;
        let (head, body) = response.into_parts();
        if let Ok(Ok(_)) = timeout(BODY_TIMEOUT, Limited::new(body, MAX_RESPONSE).collect()).await {
            self.idle.lock().push(connection);
        }
        Ok(head)
    }

    /// Takes a connection that is still open.
    async fn kept(&self) -> Option<Connection> {
        loop {
            let mut kept = self.idle.lock().pop()?;
            if kept.opened_at.elapsed() < MAX_AGE && kept.sender.ready().await.is_ok() {
                return Some(kept);
            }
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        headers: HeaderMap,
        body: Bytes,
    ) -> io::Result<(Connection, http::Response<Incoming>)> {
        let mut request = Request::post(self.path.clone()).body(Full::new(body)).map_err(io::Error::other)?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.authority.clone());
        let response = connection.sender.send_request(request).await.map_err(io::Error::other)?;
        Ok((connection, response))
    }

    async fn connect(&self) -> io::Result<Connection> {
        let stream = self.connect_tcp().await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => open(stream).await,
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
                open(connector.connect(name, stream).await?).await
            }
        }
    }

    /// Connects to the first of the host's addresses that accepts a connection.
    async fn connect_tcp(&self) -> io::Result<TcpStream> {
        let mut failure = io::Error::other("the host has no address");
        for address in lookup_host((&*self.host, self.port)).await? {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::Error::other(format!("no connection to {address} within {CONNECT_TIMEOUT:?}")),
            }
        }
        Err(failure)
    }
}

async fn open(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Connection> {
    let handshake = http1::Builder::new().max_buf_size(MAX_RESPONSE).handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    // The next request reports how the connection ended.
    tokio::spawn(async { drop(connection.await) });
    Ok(Connection { sender, opened_at: Instant::now() })
}
