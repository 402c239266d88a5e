//! A tap between a proxy and its origin. It counts the requests that the proxy forwards and the responses of the origin,
//! for each connection.
//!
//! The proxy gives every request that it forwards an `x-request-id` that no client can know, and the origin repeats it in
//! its response. A response without that id answers bytes that the proxy took for a body, unless the id is not a valid one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Differences that a client could abuse, and the numbers of messages.
#[derive(Default)]
pub struct Findings {
    pub forwarded: AtomicU64,
    pub answered: AtomicU64,
    /// Requests that the origin closed its connection on, without a response.
    pub unanswered: AtomicU64,
    relevant: Mutex<Vec<String>>,
}

impl Findings {
    pub fn add(&self, difference: String) {
        self.relevant.lock().unwrap().push(difference);
    }

    pub fn relevant(&self) -> Vec<String> {
        self.relevant.lock().unwrap().clone()
    }
}

/// Forwards connections to `origin` and returns the address of the tap. The proxy's ids begin with `secret`.
pub async fn tap(origin: SocketAddr, proxy: &'static str, secret: &str, findings: &Arc<Findings>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (secret, findings) = (secret.to_owned(), Arc::clone(findings));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let exchange = Exchange::new(proxy, &secret, Arc::clone(&findings));
            tokio::spawn(relay(stream, origin, exchange));
        }
    });
    address
}

async fn relay(proxy: TcpStream, origin: SocketAddr, exchange: Exchange) {
    let Ok(origin) = TcpStream::connect(origin).await else { return };
    proxy.set_nodelay(true).unwrap();
    origin.set_nodelay(true).unwrap();
    let exchange = Mutex::new(exchange);
    let ((from_proxy, to_proxy), (from_origin, to_origin)) = (proxy.into_split(), origin.into_split());
    tokio::join!(
        copy(from_proxy, to_origin, |bytes| match bytes {
            [] => exchange.lock().unwrap().abandoned = true,
            bytes => exchange.lock().unwrap().forward(bytes),
        }),
        copy(from_origin, to_proxy, |bytes| match bytes {
            [] => exchange.lock().unwrap().end(),
            bytes => exchange.lock().unwrap().answer(bytes),
        })
    );
}

/// Shows the bytes to `seen` before it forwards them, and at the end an empty slice.
async fn copy(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, seen: impl Fn(&[u8])) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        seen(&bytes[..read]);
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    seen(&[]);
    let _ = to.shutdown().await;
}

/// The requests and responses of one connection.
struct Exchange {
    proxy: &'static str,
    findings: Arc<Findings>,
    ids: Ids,
    responses: Responses,
    /// Ids of requests without a response.
    open: VecDeque<String>,
    /// The last bytes that the proxy forwarded, for messages.
    recent: Vec<u8>,
    is_closing: bool,
    abandoned: bool,
}

impl Exchange {
    fn new(proxy: &'static str, secret: &str, findings: Arc<Findings>) -> Self {
        Self {
            proxy,
            findings,
            ids: Ids { secret: secret.to_owned(), rest: Vec::new() },
            responses: Responses::default(),
            open: VecDeque::new(),
            recent: Vec::new(),
            is_closing: false,
            abandoned: false,
        }
    }

    fn forward(&mut self, bytes: &[u8]) {
        self.recent.extend_from_slice(bytes);
        let old = self.recent.len().saturating_sub(4_096);
        self.recent.drain(..old);
        let ids = self.ids.read(bytes);
        self.findings.forwarded.fetch_add(ids.len() as u64, Ordering::Relaxed);
        self.open.extend(ids);
    }

    fn answer(&mut self, bytes: &[u8]) {
        for response in self.responses.read(bytes) {
            if response.status < 200 {
                continue;
            }
            self.findings.answered.fetch_add(1, Ordering::Relaxed);
            let expected = self.open.pop_front();
            match (&expected, &response.id) {
                (Some(expected), Some(id)) if expected == id || (is_replaced(expected) && self.is_own(id)) => {}
                // The parser's own errors have no id, and close the connection.
                (Some(_), None) if !self.is_closing && (400..=431).contains(&response.status) => self.is_closing = true,
                _ => self.report(&format!("a response to no forwarded request: {response:?}, expected {expected:?}")),
            }
            if response.is_blocked {
                self.report(&format!("the origin served a blocked path: {response:?}"));
            }
            self.is_closing |= response.closes;
        }
    }

    /// Returns whether the service chose this id itself.
    fn is_own(&self, id: &str) -> bool {
        !id.starts_with(&self.ids.secret) && !id.starts_with("d-")
    }

    fn end(&self) {
        if !self.is_closing && !self.abandoned {
            self.findings.unanswered.fetch_add(self.open.len() as u64, Ordering::Relaxed);
        }
    }

    fn report(&self, difference: &str) {
        let recent = String::from_utf8_lossy(&self.recent);
        self.findings.add(format!("{}: {difference}; forwarded last: {recent:?}", self.proxy));
    }
}

/// Returns whether the service replaces an id. HAProxy's contains what an odd request has instead of its mark.
fn is_replaced(id: &str) -> bool {
    id.len() > 128 || !id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Finds the proxy's ids in forwarded bytes.
struct Ids {
    secret: String,
    rest: Vec<u8>,
}

impl Ids {
    fn read(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let (mut ids, mut from) = (Vec::new(), 0);
        while let Some(start) = find(&self.rest[from..], self.secret.as_bytes()).map(|at| from + at) {
            let Some(end) = find(&self.rest[start..], b"\r").map(|at| start + at) else {
                self.rest.drain(..start);
                return ids;
            };
            ids.push(String::from_utf8_lossy(&self.rest[start..end]).into_owned());
            from = end;
        }
        // The next id may have begun.
        let end = self.rest.len().saturating_sub(self.secret.len()).max(from);
        self.rest.drain(..end);
        ids
    }
}

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub id: Option<String>,
    pub closes: bool,
    /// The response is the content of the path that a rule of the proxies blocks.
    pub is_blocked: bool,
}

impl Head {
    fn parse(head: &str) -> Self {
        let value = |name: &str| {
            let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            lines.find(|(this, _)| this.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let content_type = value("content-type").unwrap_or_default();
        Self {
            status,
            id: value("x-request-id").map(str::to_owned),
            closes: value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
            is_blocked: status == 200 && content_type.starts_with("text/plain"),
        }
    }
}

/// Finds the heads of responses. No response of the service has `HTTP/1.` in its body.
#[derive(Default)]
pub struct Responses(Vec<u8>);

impl Responses {
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Head> {
        const START: &[u8] = b"HTTP/1.";
        self.0.extend_from_slice(bytes);
        let mut heads = Vec::new();
        while let Some(start) = find(&self.0, START) {
            let Some(length) = find(&self.0[start..], b"\r\n\r\n") else {
                self.0.drain(..start);
                return heads;
            };
            heads.push(Head::parse(&String::from_utf8_lossy(&self.0[start..start + length])));
            self.0.drain(..start + length);
        }
        let end = self.0.len().saturating_sub(START.len());
        self.0.drain(..end);
        heads
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
