//! A connection to a NATS server: the part of the client protocol that the relay needs.
//!
//! Not the crate async-nats: a server can make it reconnect without a pause and use any amount of memory.

use std::io;
use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use super::url::Credentials;
use crate::tls;

/// Maximum length of a line. The first one names all servers of a cluster.
const LINE: u64 = 64 * 1024;

/// Maximum size of a message from the server, such as the state of a stream.
const MESSAGE: usize = 1024 * 1024;

trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for T {}

/// A connection. After an error or a wait that was given up, it must be closed.
pub struct Connection {
    io: BufStream<Box<dyn Io>>,
    /// Prefix of the subjects of responses.
    inbox: String,
    /// Number of the next request.
    next: u64,
    max_payload: usize,
}

pub struct Response {
    /// Number of the request. `None` for other messages.
    pub number: Option<u64>,
    /// `None` if nobody receives requests to that subject.
    pub content: Option<Vec<u8>>,
}

/// The server's greeting.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    tls_required: bool,
    max_payload: usize,
}

impl Connection {
    /// Connects to an address of `server`, a host and port.
    pub async fn open(
        address: SocketAddr,
        server: &str,
        requires_tls: bool,
        credentials: Option<&Credentials>,
    ) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut io: BufStream<Box<dyn Io>> = BufStream::new(Box::new(tcp));
        let line = read_line(&mut io).await?;
        let info = line.strip_prefix("INFO ").and_then(|info| serde_json::from_str(info).ok());
        let info: Info = info.ok_or_else(|| io::Error::other("not a NATS server"))?;
        let requires_tls = requires_tls || info.tls_required;
        if requires_tls {
            io = BufStream::new(secure(io.into_inner(), server).await?);
        }
        let (mut user, mut password, mut token) = (None, None, None);
        match credentials {
            None => {}
            Some(Credentials::Token(secret)) => token = Some(secret.expose()),
            Some(Credentials::Password { user: name, password: secret }) => {
                (user, password) = (Some(name), Some(secret.expose()));
            }
        }
        let connect = json!({
            "name": "petstore",
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "verbose": false,
            "pedantic": false,
            "tls_required": requires_tls,
            "headers": true,
            "no_responders": true,
            "user": user,
            "pass": password,
            "auth_token": token,
        });
        let inbox = format!("_INBOX.{:016x}", getrandom::u64().map_err(io::Error::other)?);
        io.write_all(format!("CONNECT {connect}\r\nSUB {inbox}.* 1\r\n").as_bytes()).await?;
        let mut connection = Self { io, inbox, next: 0, max_payload: info.max_payload };
        connection.ping().await?;
        Ok(connection)
    }

    /// Waits until the server has processed all that was sent.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.io.write_all(b"PING\r\n").await?;
        self.io.flush().await?;
        while self.read().await?.is_some() {}
        Ok(())
    }

    /// Writes a request without flushing it. `headers` are lines. Returns its number, or `None` if the server does not take
    /// requests of its size.
    pub async fn write(&mut self, subject: &str, headers: &str, content: &[u8]) -> io::Result<Option<u64>> {
        let number = self.next;
        let headers = format!("NATS/1.0\r\n{headers}\r\n");
        let (inbox, size) = (&self.inbox, headers.len() + content.len());
        if size > self.max_payload {
            return Ok(None);
        }
        self.next += 1;
        let line = format!("HPUB {subject} {inbox}.{number} {} {size}\r\n", headers.len());
        for part in [line.as_bytes(), headers.as_bytes(), content, b"\r\n"] {
            self.io.write_all(part).await?;
        }
        Ok(Some(number))
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.io.flush().await
    }

    /// Waits for the next response.
    pub async fn response(&mut self) -> io::Result<Response> {
        loop {
            if let Some(response) = self.read().await? {
                return Ok(response);
            }
        }
    }

    /// Reads the next message, or `None` for the response to a ping. Responds to pings of the server.
    async fn read(&mut self) -> io::Result<Option<Response>> {
        loop {
            let line = read_line(&mut self.io).await?;
            let (operation, arguments) = line.split_once(' ').unwrap_or((&line, ""));
            match operation {
                "MSG" => return self.message(arguments, false).await.map(Some),
                "HMSG" => return self.message(arguments, true).await.map(Some),
                "PONG" => return Ok(None),
                "PING" => {
                    self.io.write_all(b"PONG\r\n").await?;
                    self.io.flush().await?;
                }
                "INFO" | "+OK" => {}
                "-ERR" => return Err(io::Error::other(arguments.trim_matches('\'').to_owned())),
                _ => return Err(invalid()),
            }
        }
    }

    /// Reads the rest of a message: `SUBJECT SUBSCRIPTION [REPLY] [HEADER-BYTES] BYTES`, and the bytes.
    async fn message(&mut self, arguments: &str, has_headers: bool) -> io::Result<Response> {
        let mut arguments = arguments.split_ascii_whitespace();
        let mut size = || arguments.next_back().and_then(|size| size.parse().ok()).ok_or_else(invalid);
        let total: usize = size()?;
        let headers: usize = if has_headers { size()? } else { 0 };
        let number =
            arguments.next().and_then(|subject| subject.strip_prefix(&self.inbox)?.strip_prefix('.')?.parse().ok());
        if total > MESSAGE || headers > total {
            return Err(invalid());
        }
        let mut content = vec![0; total + 2];
        self.io.read_exact(&mut content).await?;
        content.truncate(total);
        let is_unreceived = content[..headers].starts_with(b"NATS/1.0 503");
        Ok(Response { number, content: (!is_unreceived).then(|| content.split_off(headers)) })
    }
}

/// Reads a line without its end.
async fn read_line(io: &mut BufStream<Box<dyn Io>>) -> io::Result<String> {
    let mut line = String::new();
    io.take(LINE).read_line(&mut line).await?;
    match line.strip_suffix("\r\n") {
        Some(content) => Ok(content.to_owned()),
        None if line.len() as u64 == LINE => Err(invalid()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn secure(io: Box<dyn Io>, server: &str) -> io::Result<Box<dyn Io>> {
    let connector = tls::system_connector(&[]).await.map_err(io::Error::other)?;
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(connector.connect(name, io).await?))
}

fn invalid() -> io::Error {
    io::Error::other("the server violates the protocol of NATS")
}
