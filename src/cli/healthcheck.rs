//! `petstore healthcheck`

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::ClientConnection;

use super::{Failure, Outcome};
use crate::config::{Common, Door, Service};
use crate::tls::{self, Trust};

const PATIENCE: Duration = Duration::from_secs(3);

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
        let door =
            [(Door::Ops, service.ops_listen), (Door::Store, service.listen), (Door::Messages, service.messages_listen)];
        let door = door.into_iter().find(|(door, _)| service.doors.contains(door));
        let (_, address) = door.ok_or_else(|| Failure("no door is configured".into()))?;
        let asked = ask(reachable(address), service.tls_cert.is_some());
        let status = asked.map_err(|error| Failure(format!("{address} is not ready: {error}")))?;
        match status.as_str() {
            "200" => Ok(()),
            other => Err(Failure(format!("{address} is not ready: it answers {other}"))),
        }
    }
}

/// Where a service that is bound to every address can be reached from here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn ask(address: SocketAddr, tls: bool) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if !tls {
        return exchange(stream, address);
    }
    // The certificate is for the name that clients use, and not for the address here; no secret is sent.
    let config = tls::client(Trust::Anybody, b"http/1.1").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), address.ip().into()).map_err(io::Error::other)?;
    exchange(rustls::Stream::new(&mut tls, &mut stream), address)
}

fn exchange(mut stream: impl Read + Write, address: SocketAddr) -> io::Result<String> {
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut status_line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status_line)?;
    Ok(String::from_utf8_lossy(&status_line[9..]).into_owned())
}
