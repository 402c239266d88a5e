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
use crate::tls::{self, Trust};

/// For all of it, from the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// As much of an answer as is read: far more than `/readyz` says.
const ANSWER_BYTES: u64 = 64 << 10;

/// Exit with 0 when the service at the configured address is ready, else with 1
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
        let answer = ask(reachable(address), service.tls_cert.is_some()).map_err(|error| not_ready(&error))?;
        match reason(&answer) {
            None => Ok(()),
            Some(why) => Err(not_ready(&why)),
        }
    }
}

fn ask(address: SocketAddr, tls: bool) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut stream = InTime { stream: TcpStream::connect_timeout(&address, PATIENCE)?, until };
    if !tls {
        return exchange(stream, address);
    }
    // The certificate is for the name that clients use, and not for the address here; no secret is sent.
    let config = tls::client(Trust::Anybody, b"http/1.1").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), address.ip().into()).map_err(io::Error::other)?;
    exchange(rustls::Stream::new(&mut tls, &mut stream), address)
}

fn exchange(mut stream: impl Read + Write, address: SocketAddr) -> io::Result<Vec<u8>> {
    // In one piece: who answers the first bytes and hangs up would not take the others.
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES).read_to_end(&mut answer) {
        // Who is asked what it does not take may say so and hang up.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset || answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

/// Why an answer is no yes, where it is none: in the service's own words, if it has any.
fn reason(answer: &[u8]) -> Option<String> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let Some(status) = head.strip_prefix("HTTP/1.1 ").and_then(|line| line.split_ascii_whitespace().next()) else {
        return Some("what answers there speaks no HTTP".into());
    };
    if status == "200" {
        return None;
    }
    let message = serde_json::from_str::<Value>(body).ok();
    let message = message.as_ref().and_then(|body| body["message"].as_str());
    Some(message.map_or_else(|| format!("it answers {status}"), |message| format!("it answers {status}: {message}")))
}

/// A stream that fails once it is too late, however often a few bytes come.
struct InTime {
    stream: TcpStream,
    until: Instant,
}

impl InTime {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(too_late()) } else { Ok(Some(left)) }
    }
}

/// What the system calls a resource that is temporarily unavailable is an answer that did not come.
fn in_words(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { too_late() } else { error }
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs()))
}

impl Read for InTime {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into).map_err(in_words)
    }
}

impl Write for InTime {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
