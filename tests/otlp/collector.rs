//! A collector on a real socket, which responds with a status that the test sets. It reads exports by OpenTelemetry's own
//! definition of OTLP, in Python, so that an error of the encoder is not repeated here.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;
use testkit::{Certificate, soon};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// Runs until the test's runtime ends.
pub struct Collector {
    pub address: SocketAddr,
    /// The status of the next responses.
    pub status: Arc<AtomicU16>,
    requests: mpsc::UnboundedReceiver<Export>,
}

/// A request of an exporter.
pub struct Export {
    /// The request line and the headers, in lower case.
    pub head: Vec<String>,
    pub body: Value,
}

impl Collector {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), None, 200)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn with(certificate: &Certificate) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), Some(certificate.server_config().into()), 200)
    }

    pub fn on(listener: TcpListener, tls: Option<TlsAcceptor>, status: u16) -> Self {
        let address = listener.local_addr().unwrap();
        let status = Arc::new(AtomicU16::new(status));
        let (seen, requests) = mpsc::unbounded_channel();
        let set = Arc::clone(&status);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, status, seen) = (tls.clone(), Arc::clone(&set), seen.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &status, &seen).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &status, &seen).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, status, requests }
    }

    /// The next request.
    pub async fn export(&mut self) -> Export {
        soon(self.requests.recv()).await.unwrap()
    }

    /// Returns the spans of the next requests, at least `count`, in the order of their ends.
    pub async fn spans(&mut self, count: usize) -> Vec<Value> {
        let mut spans = Vec::new();
        while spans.len() < count {
            spans.extend(self.export().await.spans());
        }
        spans
    }
}

impl Export {
    pub fn spans(&self) -> Vec<Value> {
        self.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    }
}

/// Decodes the body of an export as JSON.
fn decode(body: &[u8]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(root.join("target/tools/python/bin/python"));
    let python = python.arg(root.join("tests/otlp/decode.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut python = python.expect("scripts/test installs the tools");
    python.stdin.take().unwrap().write_all(body).unwrap();
    serde_json::from_slice(&python.wait_with_output().unwrap().stdout).unwrap()
}

/// Responds to requests on a connection until it closes.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    status: &AtomicU16,
    seen: &mpsc::UnboundedSender<Export>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.ok()?;
        // Read first, because the test may change the status for the next request once it sees this one.
        let response = format!("HTTP/1.1 {} x\r\ncontent-length: 0\r\n\r\n", status.load(Ordering::SeqCst));
        // The test may have ended.
        let _ = seen.send(Export { head, body: decode(&body) });
        stream.write_all(response.as_bytes()).await.ok()?;
    }
}
