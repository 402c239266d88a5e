//! A service reached with or without TLS, by connections that a test controls.

use std::net::SocketAddr;

use bounded_http::{Limits, Tls};
use testkit::{Certificate, Request, Response, read_response_from, soon};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{REX, Service, Setup};

pub const LIVE: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub struct Transport {
    pub service: Service,
    pub certificate: Option<Certificate>,
    _folder: tempfile::TempDir,
}

impl Transport {
    pub async fn plain(limits: impl FnOnce(&mut Limits)) -> Self {
        Self::start(false, limits).await
    }

    pub async fn tls(limits: impl FnOnce(&mut Limits)) -> Self {
        Self::start(true, limits).await
    }

    /// A service without and one with TLS.
    pub async fn each(limits: impl Fn(&mut Limits)) -> [Self; 2] {
        [Self::plain(&limits).await, Self::tls(&limits).await]
    }

    async fn start(with_tls: bool, limits: impl FnOnce(&mut Limits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = with_tls.then(|| Certificate::of_localhost(folder.path(), "server"));
        let tls = certificate.as_ref().map(|certificate| Tls::load(&certificate.file, &certificate.key).unwrap());
        let mut setup = Setup { tls, ..Setup::default() };
        limits(&mut setup.limits);
        Self { service: Service::start_with(setup).await, certificate, _folder: folder }
    }

    pub async fn connect(&self) -> Box<dyn Stream> {
        self.connect_to(self.service.store_address).await
    }

    pub async fn connect_to(&self, address: SocketAddr) -> Box<dyn Stream> {
        match &self.certificate {
            Some(certificate) => Box::new(certificate.connect(address).await),
            None => Box::new(TcpStream::connect(address).await.unwrap()),
        }
    }

    /// Connects and sends bytes.
    pub async fn connect_with(&self, bytes: &str) -> Box<dyn Stream> {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    pub async fn send(&self, request: Request) -> Response {
        let stream = self.connect().await;
        request.send_over(stream).await
    }

    pub async fn read_response(&self, stream: &mut Box<dyn Stream>) -> Response {
        soon(read_response_from(self.service.store_address, stream)).await
    }

    /// Sends a request for `/livez` and reads its response.
    pub async fn assert_answers(&self, stream: &mut Box<dyn Stream>) {
        stream.write_all(LIVE.as_bytes()).await.unwrap();
        assert_eq!(self.read_response(stream).await.status(), 200);
    }

    /// The head of a POST of JSON with the service's key. `framing` ends it and begins the body.
    pub fn begun_post(&self, path: &str, framing: &str) -> String {
        let key = &self.service.key;
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nx-request-id: mine\r\n\
             content-type: application/json\r\n{framing}"
        )
    }

    /// Connects and sends a request that creates an animal, with these further lines in its head.
    pub async fn create(&self, lines: &str) -> Box<dyn Stream> {
        let framing = format!("content-length: {}\r\n{lines}\r\n{REX}", REX.len());
        self.connect_with(&self.begun_post("/v1/pets", &framing)).await
    }

    /// Waits until the server accepts no more connections.
    pub async fn assert_closed(&self) {
        for address in self.service.addresses() {
            assert!(TcpStream::connect(address).await.is_err(), "{address}");
        }
    }
}
