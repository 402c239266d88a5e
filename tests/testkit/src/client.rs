//! An asynchronous HTTP client that hides nothing.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request, sent exactly as it is built: only `Host` and `Content-Length` are added.
pub struct Request {
    address: SocketAddr,
    request: http::request::Builder,
    body: Vec<u8>,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let request = http::Request::builder().method(method).uri(path).header("host", address.to_string());
        Self { address, request, body: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Replaces the `Host`, as a client does that reaches the server by another name.
    pub fn host(mut self, host: &str) -> Self {
        let headers = self.request.headers_mut().expect("the request is valid");
        headers.insert("host", host.parse().unwrap());
        self
    }

    /// Adds an API key as the bearer token.
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds a body with the content type of JSON.
    pub fn json(self, body: impl Into<Vec<u8>>) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    /// Adds the fields of an HTML form.
    pub fn form(self, fields: &[(&str, &str)]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.header("content-type", "application/x-www-form-urlencoded").body(body)
    }

    pub async fn send(self) -> Response {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.send_over(stream).await
    }

    /// Sends the request over an open connection, which is then closed.
    pub async fn send_over(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Response {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = self.request.body(Full::new(Bytes::from(self.body))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        let _ = connection.await;
        Response { head, body: String::from_utf8(body.to_vec()).unwrap(), address: self.address }
    }
}

pub struct Response {
    pub head: http::response::Parts,
    pub body: String,
    address: SocketAddr,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// The items of a comma-separated header, in lower case and sorted.
    pub fn list(&self, name: &str) -> Vec<String> {
        let items = self.header(name).unwrap_or_default().split(',').map(|item| item.trim().to_ascii_lowercase());
        let mut items: Vec<_> = items.filter(|item| !item.is_empty()).collect();
        items.sort();
        items
    }

    /// A header that occurs at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.head.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} occurs more than once");
        value
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The `code` of an error response, after checking that its body has the shape of every error.
    pub fn code(&self) -> String {
        let body = self.json();
        let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "status"], "{body}");
        assert_eq!(body["status"], self.status(), "{body}");
        assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        body["code"].as_str().unwrap().to_owned()
    }

    /// Status, headers and body for a snapshot, without what differs from run to run.
    pub fn shown(&self) -> String {
        let varying = ["date", "x-request-id", "content-length"];
        let headers = self.head.headers.iter().filter(|(name, _)| !varying.contains(&name.as_str()));
        let lines = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        let shown = format!("{}\n{}\n{}\n", self.head.status, lines.collect::<String>(), self.body);
        shown.replace(&self.address.to_string(), "HOST")
    }
}

/// Sends bytes as they are and reads until the server closes the connection.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_to_end(&mut stream).await
}

pub async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads one response from a connection on which others may follow.
pub async fn read_response(stream: &mut TcpStream) -> Response {
    let address = stream.peer_addr().unwrap();
    read_response_from(address, stream).await
}

/// Reads one response from a connection of any kind to `address`.
pub async fn read_response_from(address: SocketAddr, stream: &mut (impl AsyncRead + Unpin)) -> Response {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the response has a whole head"));
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut response = http::Response::builder().status(status);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        response = response.header(name, value);
    }
    let (head, ()) = response.body(()).unwrap().into_parts();
    let mut response = Response { head, body: String::new(), address };
    let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    response.body = String::from_utf8(body).unwrap();
    response
}
