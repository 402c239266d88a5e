//! `petstore healthcheck`

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::api::Operation;
use crate::cli::{Failure, Outcome};
use crate::config::{Listener, ServiceSettings, reachable};
use crate::tls::{self, Trust};

/// Maximum time for the whole check, including the connection.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of bytes of the response to read. Responses of `/readyz` are far smaller.
const MAX_RESPONSE: u64 = 64 << 10;

/// Check whether the service is ready
///
/// Sends `GET /readyz` to the operations listener or, without one, the store or messages listener. The exit status is 0 if
/// the service is ready, and 1 if it is not ready or does not respond within 3 seconds.
#[derive(Args, Debug)]
pub struct Healthcheck {
    #[command(flatten)]
    service: ServiceSettings,
}

impl Healthcheck {
    pub fn run(self) -> Outcome {
        let service = &self.service;
        let listener = [
            (Listener::Ops, service.ops_listen),
            (Listener::Store, service.listen),
            (Listener::Messages, service.messages_listen),
        ];
        let listener = listener.into_iter().find(|(listener, _)| service.listeners.contains(listener));
        let (_, address) = listener.ok_or_else(|| Failure("no listener is configured".into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let response = runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, request(reachable(address), service.tls_cert.is_some())).await
        });
        let why = match response {
            Ok(Ok(response)) => failure(&response),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no response within {} s", TIMEOUT.as_secs())),
        };
        match why {
            None => Ok(()),
            Some(why) => Err(Failure(format!("{address} is not ready: {why}"))),
        }
    }
}

async fn request(address: SocketAddr, tls: bool) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect(address).await?;
    if !tls {
        return exchange(stream, address).await;
    }
    // The certificate is not verified: it is for the public host name, and the request contains no secret.
    let config = tls::client(Trust::Anybody, &[b"http/1.1"]).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    exchange(connector.connect(address.ip().into(), stream).await?, address).await
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, address: SocketAddr) -> io::Result<Vec<u8>> {
    // Written at once, because a server that rejects the first bytes may close the connection before the next write.
    let path = Operation::GetReadiness.path();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut response = Vec::new();
    match stream.take(MAX_RESPONSE).read_to_end(&mut response).await {
        // A server that rejects the request may reset the connection after its response.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset || response.is_empty() => Err(error),
        _ => Ok(response),
    }
}

/// Returns why the service is not ready, from the response's status and message. `None` if it is ready.
fn failure(response: &[u8]) -> Option<String> {
    let response = String::from_utf8_lossy(response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let Some(status) = head.strip_prefix("HTTP/1.1 ").and_then(|line| line.split_ascii_whitespace().next()) else {
        return Some("the response is not HTTP".into());
    };
    if status == "200" {
        return None;
    }
    let message = serde_json::from_str::<Value>(body).ok();
    let message = message.as_ref().and_then(|body| body["message"].as_str());
    Some(message.map_or_else(|| format!("status {status}"), |message| format!("status {status}: {message}")))
}
