//! `petstore healthcheck`

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rustls::ClientConnection;
use serde_json::Value;

use super::{Failure, Outcome};
use crate::config::{Common, Listener, Service, reachable};
use crate::http::Operation;
use crate::tls::{self, Trust};

/// Maximum time for the whole check, including the connection.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of bytes of the response to read. Responses of `/readyz` are far smaller.
const MAX_RESPONSE: u64 = 64 << 10;

/// Check whether the service is ready
///
/// Sends `GET /readyz` to the configured address. The exit status is 0 if the service is ready, and 1 if it is not ready
/// or does not respond within 3 seconds.
#[derive(Args, Debug)]
pub struct Healthcheck {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    common: Common,
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
        let not_ready = |why: &dyn Display| Failure(format!("{address} is not ready: {why}"));
        let response = request(reachable(address), service.tls_cert.is_some()).map_err(|error| not_ready(&error))?;
        match failure(&response) {
            None => Ok(()),
            Some(why) => Err(not_ready(&why)),
        }
    }
}

fn request(address: SocketAddr, tls: bool) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut stream = DeadlineStream { stream: TcpStream::connect_timeout(&address, TIMEOUT)?, deadline };
    if !tls {
        return exchange(stream, address);
    }
    // The certificate is not verified: it is for the public host name, and the request contains no secret.
    let config = tls::client(Trust::Anybody, b"http/1.1").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), address.ip().into()).map_err(io::Error::other)?;
    exchange(rustls::Stream::new(&mut tls, &mut stream), address)
}

fn exchange(mut stream: impl Read + Write, address: SocketAddr) -> io::Result<Vec<u8>> {
    // Written at once, because a server that rejects the first bytes may close the connection before the next write.
    let path = Operation::GetReadiness.path();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut response = Vec::new();
    match stream.take(MAX_RESPONSE).read_to_end(&mut response) {
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

/// A stream with a deadline for all reads and writes together, so that a server that sends byte by byte cannot delay it.
struct DeadlineStream {
    stream: TcpStream,
    deadline: Instant,
}

impl DeadlineStream {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(timed_out()) } else { Ok(Some(remaining)) }
    }
}

/// Replaces `WouldBlock`, which Linux returns when a socket's timeout expires.
fn translate_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timed_out() } else { error }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no response within {} s", TIMEOUT.as_secs()))
}

impl Read for DeadlineStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(into).map_err(translate_timeout)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(from).map_err(translate_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
