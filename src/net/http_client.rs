//! An HTTP/1.1 client for one server, with persistent connections: the collector of traces, the endpoint of messages, the
//! service that `petstore healthcheck` checks.
//!
//! The status line of a response decides, because the server has acted by then. The rest only decides whether the connection
//! is used again, so that a request is not repeated because of a response that breaks the protocol.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};

use axum::http::uri::Uri;
use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, copy};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// Maximum size of a response's head, and of its body. More closes the connection.
const MAX_HEAD: u64 = 64 << 10;
const MAX_BODY: u64 = 8 << 10;

/// Maximum time for the rest of a response after its status line.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time to connect to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Age at which a connection is no longer reused, so that changes of the server's name take effect.
const MAX_AGE: Duration = Duration::from_mins(1);

pub struct Client {
    host: String,
    port: u16,
    /// The request line without its method, and the header `Host`.
    start: String,
    /// `None` for `http`.
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.host).finish_non_exhaustive()
    }
}

struct Connection {
    stream: BufReader<Box<dyn Socket>>,
    opened_at: Instant,
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Socket for T {}

pub struct Response {
    pub status: StatusCode,
    /// The lower-case names and the values of the headers that were read.
    headers: Vec<(String, String)>,
    /// The part of the body that was read, without the lines of chunks.
    pub body: Vec<u8>,
}

impl Client {
    /// Creates a client that ignores user information in `url`.
    pub fn new(url: &Uri, tls: Option<TlsConnector>) -> Self {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let path = url.path_and_query().map_or("/".to_owned(), ToString::to_string);
        Self {
            host: url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 }),
            start: format!(" {path} HTTP/1.1\r\nhost: {authority}\r\n"),
            tls,
            idle: Mutex::default(),
        }
    }

    /// Sends a request, and returns the status and headers of the response. Fails if the status does not arrive within
    /// `limit`.
    ///
    /// Repeats it once if a connection that was kept fails, because the server may have closed it at the same time.
    pub async fn send(&self, method: &str, headers: &HeaderMap, body: &[u8], limit: Duration) -> io::Result<Response> {
        let request = &*self.request(method, headers, body);
        let exchange = async {
            if let Some(kept) = self.kept().await
                && let Ok(exchanged) = exchange(kept, request).await
            {
                return Ok(exchanged);
            }
            exchange(self.connect().await?, request).await
        };
        let late = |_| Err(io::Error::other(format!("no response within {limit:?}")));
        let (mut connection, status, is_newest) = timeout(limit, exchange).await.unwrap_or_else(late)?;
        let mut response = Response { status, headers: Vec::new(), body: Vec::new() };
        let is_reusable = timeout(REST_TIMEOUT, read_rest(&mut connection.stream, &mut response)).await;
        if is_newest && matches!(is_reusable, Ok(Ok(true))) && connection.stream.buffer().is_empty() {
            self.idle.lock().push(connection);
        }
        Ok(response)
    }

    fn request(&self, method: &str, headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
        let mut request = format!("{method}{}content-length: {}\r\n", self.start, body.len()).into_bytes();
        for (name, value) in headers {
            request.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        [&request, &b"\r\n"[..], body].concat()
    }

    /// Takes a connection that is still open.
    async fn kept(&self) -> Option<Connection> {
        loop {
            let mut kept = self.idle.lock().pop()?;
            // An idle connection that can be read has ended.
            let is_open = poll_fn(|cx| Pin::new(&mut kept.stream).poll_fill_buf(cx).is_pending().into()).await;
            if kept.opened_at.elapsed() < MAX_AGE && is_open {
                return Some(kept);
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let stream = self.connect_tcp().await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Socket> = match &self.tls {
            None => Box::new(stream),
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
                Box::new(connector.connect(name, stream).await?)
            }
        };
        Ok(Connection { stream: BufReader::new(stream), opened_at: Instant::now() })
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

/// Sends a request. Returns the connection, the status of the response, and whether it has the newest version of the protocol,
/// which keeps connections.
async fn exchange(mut connection: Connection, request: &[u8]) -> io::Result<(Connection, StatusCode, bool)> {
    let stream = &mut connection.stream;
    // A server may respond and close the connection before it has read the request.
    let written = async {
        stream.write_all(request).await?;
        stream.flush().await
    };
    let written = written.await;
    let (status, is_newest) = read_status(stream).await.map_err(|error| written.err().unwrap_or(error))?;
    Ok((connection, status, is_newest))
}

/// Reads status lines until that of the final response. Interim responses precede it. Also returns whether the response is of
/// HTTP/1.1.
async fn read_status(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<(StatusCode, bool)> {
    loop {
        let head = &mut stream.take(MAX_HEAD);
        let line = read_line(head).await?;
        let status = line.strip_prefix("HTTP/1.").and_then(|line| line.split(' ').nth(1)?.parse::<StatusCode>().ok());
        let status = status.ok_or_else(|| invalid("status line"))?;
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok((status, line.starts_with("HTTP/1.1 ")));
        }
        while !read_line(head).await?.is_empty() {}
    }
}

/// Reads the other headers and the body. Returns whether another response may follow.
async fn read_rest(stream: &mut (impl AsyncBufRead + Unpin), response: &mut Response) -> io::Result<bool> {
    let mut head = stream.take(MAX_HEAD);
    loop {
        let line = read_line(&mut head).await?;
        match (line.split_once(':'), response.headers.last_mut()) {
            _ if line.is_empty() => break,
            (_, Some((_, value))) if line.starts_with([' ', '\t']) => value.extend([" ", line.trim()]),
            (Some((name, value)), _) => response.headers.push((name.to_ascii_lowercase(), value.to_owned())),
            (None, _) => return Err(invalid("header")),
        }
    }
    let mut body = stream.take(MAX_BODY);
    let (headers, content) = (&response.headers, &mut response.body);
    let is_last = all(headers, "connection").any(|value| !value.eq_ignore_ascii_case("keep-alive"));
    let [lengths, codings] = ["content-length", "transfer-encoding"].map(|name| all(headers, name).collect::<Vec<_>>());
    let is_whole = match (&*lengths, &*codings) {
        _ if matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => true,
        ([length], []) => {
            let length = length.parse().map_err(|_| invalid("content-length"))?;
            copy(&mut (&mut body).take(length), content).await? == length
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => {
            while read_chunk(&mut body, content).await? {}
            true
        }
        // The end of the connection ends the body.
        _ => {
            copy(&mut body, content).await?;
            false
        }
    };
    Ok(is_whole && !is_last)
}

/// Returns false after the last chunk and the trailers.
async fn read_chunk(body: &mut (impl AsyncBufRead + Unpin), content: &mut Vec<u8>) -> io::Result<bool> {
    let line = read_line(body).await?;
    let size = line.split(';').next().and_then(|size| u64::from_str_radix(size.trim(), 16).ok());
    let size = size.ok_or_else(|| invalid("chunk"))?;
    copy(&mut (&mut *body).take(size), content).await?;
    while !read_line(body).await?.is_empty() {
        if size > 0 {
            return Err(invalid("chunk"));
        }
    }
    Ok(size > 0)
}

/// Reads a line without its end.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    let line =
        line.strip_suffix(b"\n").ok_or_else(|| io::Error::other("the connection or the response ended early"))?;
    Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
}

fn invalid(what: &str) -> io::Error {
    io::Error::other(format!("the response has an invalid {what}"))
}

/// The values of the headers with this name.
fn all<'r>(headers: &'r [(String, String)], name: &'static str) -> impl Iterator<Item = &'r str> {
    headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
}

impl Response {
    pub fn header(&self, name: &'static str) -> Option<&str> {
        all(&self.headers, name).next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connection_is_used_again_after_a_whole_response() {
        for (response, body, connections) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", "", 1),
            ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", "ok", 1),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1;a=b\r\no\r\n1\r\nk\r\n0\r\na: b\r\n\r\n", "ok", 1),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", "ok", 2),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok?", "ok", 2),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n", "o", 2),
            ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", 2),
        ] {
            let (client, accepted) = served(response).await;

            for _ in 0..2 {
                let answered =
                    client.send("POST", &HeaderMap::new(), b"{}", Duration::from_mins(1)).await.expect(response);
                assert_eq!(answered.body, body.as_bytes(), "{response}");
            }

            assert_eq!(accepted.load(Ordering::Relaxed), connections, "{response}");
        }
    }

    #[tokio::test]
    async fn first_header_of_a_name_is_found() {
        let (client, _) =
            served("HTTP/1.1 503 Busy\r\nRetry-After:  7 \r\nretry-after: 8\r\ncontent-length: 0\r\n\r\n").await;

        let response = client.send("POST", &HeaderMap::new(), b"{}", Duration::from_mins(1)).await.unwrap();

        assert_eq!((response.header("retry-after"), response.header("date")), (Some("7"), None));
    }

    /// Returns a client of a server that gives this response to each request, and the number of its connections, which it
    /// keeps open.
    async fn served(response: &'static str) -> (Client, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), None);
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while stream.read_until(b'}', &mut Vec::new()).await.is_ok_and(|length| length > 0) {
                        stream.write_all(response.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        (client, accepted)
    }
}
