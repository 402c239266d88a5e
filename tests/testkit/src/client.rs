//! An HTTP client that hides nothing, for tests inside a runtime and for tests that block.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::trial;
use crate::wait::{TIMEOUT, eventually};

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
        self.try_send_over(stream).await.unwrap()
    }

    /// Like [`Self::send_over`]. Fails if the connection breaks before the response is complete.
    pub async fn try_send_over(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Response> {
        let began = Instant::now();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = self.request.body(Full::new(Bytes::from(self.body))).unwrap();
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        drop(sender);
        let _ = connection.await;
        let body = String::from_utf8(body.to_vec()).unwrap();
        Ok(Response { head, body, took: began.elapsed(), address: self.address })
    }

    /// Sends the request over a new connection and blocks until the response is complete.
    pub fn send_blocking(&self) -> Response {
        self.try_send_blocking().unwrap()
    }

    /// Sends the request again, at most for a minute, while the response is a 503, or the 409 of a key in progress. A busy
    /// machine or disk may make a write wait for longer than the service allows.
    pub fn send_until_available(&self) -> Response {
        eventually(TIMEOUT, "an available service", || {
            let response = self.send_blocking();
            let is_final = ![409, 503].contains(&response.status()) || response.retry_after().is_none();
            is_final.then_some(response)
        })
    }

    /// Like [`Self::send_blocking`]. Fails if the connection breaks before the response is complete.
    pub fn try_send_blocking(&self) -> io::Result<Response> {
        Connection::open(self.address)?.send(self)
    }

    /// The request as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let request = &self.request;
        let (method, uri) = (request.method_ref().unwrap(), request.uri_ref().unwrap());
        let mut bytes = format!("{method} {uri} HTTP/1.1\r\ncontent-length: {}\r\n", self.body.len()).into_bytes();
        for (name, value) in request.headers_ref().unwrap() {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }
}

/// The body of a request that creates an animal.
pub fn new_pet(name: &str) -> String {
    format!(r#"{{"name":"{name}","categoryId":1}}"#)
}

/// An animal with every field that `createPet` takes, none with its default: the document's example. A new field that a
/// story with it loses is noticed.
pub fn pet_with_all_fields() -> serde_json::Value {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let body = &document["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"];
    let mut pet = body["example"].clone();
    let fields = document["components"]["schemas"]["NewPet"]["properties"].as_object().unwrap();
    assert!(fields.keys().eq(pet.as_object().unwrap().keys()), "an example of every field: {pet}");
    pet["status"] = "sold".into();
    pet
}

/// The names of the fields of an object, in their order.
pub fn fields(object: &serde_json::Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The body of a request that sends a message.
pub fn new_message(text: &str) -> String {
    format!(r#"{{"message":"{text}"}}"#)
}

/// A keep-alive connection that blocks, at most [`TIMEOUT`] for each response.
pub struct Connection {
    stream: std::net::TcpStream,
    address: SocketAddr,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, address })
    }

    /// Waits longer than [`TIMEOUT`] for each response, for requests that wait for many others.
    pub fn patient(self, limit: Duration) -> Self {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        self
    }

    /// Sends a request and reads its response. Fails if the connection breaks first.
    pub fn send(&mut self, request: &Request) -> io::Result<Response> {
        let began = Instant::now();
        self.stream.write_all(&request.bytes())?;
        let is_head = request.request.method_ref() == Some(&http::Method::HEAD);
        let mut response = self.read_until(if is_head { is_complete_head } else { is_complete })?;
        response.took = began.elapsed();
        Ok(response)
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads a response to bytes sent with [`Self::write`].
    pub fn read_response(&mut self) -> io::Result<Response> {
        self.read_until(is_complete)
    }

    fn read_until(&mut self, is_complete: fn(&[u8]) -> bool) -> io::Result<Response> {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 16_384]);
        while !is_complete(&bytes) {
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => bytes.extend_from_slice(&chunk[..read]),
            }
        }
        Ok(Response::parse(&bytes, self.address))
    }
}

#[derive(Debug)]
pub struct Response {
    pub head: http::response::Parts,
    pub body: String,
    /// Time from the request to the end of the response. Zero if only the response was read.
    pub took: Duration,
    address: SocketAddr,
}

impl Response {
    /// Replaces bytes of the body that are not UTF-8.
    fn parse(bytes: &[u8], address: SocketAddr) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let mut response = http::Response::builder().status(status);
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            response = response.header(name, value);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        Self { head, body: body.to_owned(), took: Duration::ZERO, address }
    }

    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// The items of all lines of a comma-separated header, in lower case and sorted.
    pub fn list(&self, name: &str) -> Vec<String> {
        let lines = self.head.headers.get_all(name).iter().map(|line| line.to_str().unwrap());
        let items = lines.flat_map(|line| line.split(',')).map(|item| item.trim().to_ascii_lowercase());
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

    /// `name=value` of `Set-Cookie`.
    pub fn cookie(&self) -> Option<String> {
        self.header("set-cookie").map(|cookie| cookie.split(';').next().unwrap().to_owned())
    }

    /// The time in `Retry-After`, which must be in seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after").map(|seconds| Duration::from_secs(seconds.parse().unwrap()))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The integer `id` of the resource in the body.
    pub fn id(&self) -> i64 {
        self.json()["id"].as_i64().unwrap_or_else(|| panic!("no id: {self:?}"))
    }

    /// The value of one sample in a response to `/metrics`.
    pub fn metric(&self, sample: &str) -> f64 {
        let line = self.body.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{sample} is missing:\n{}", self.body)).parse().unwrap()
    }

    /// The ids in a page of a list.
    pub fn ids(&self) -> Vec<i64> {
        assert_eq!(self.status(), 200, "{}", self.body);
        self.json().as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect()
    }

    /// The path and query that the `Link` to the next page has.
    pub fn next_page(&self) -> Option<String> {
        let link = self.header("link")?;
        let next = link.strip_prefix(&format!("<http://{}", self.address));
        let next = next.and_then(|next| next.strip_suffix(r#">; rel="next""#));
        Some(next.unwrap_or_else(|| panic!("{link} leads to no next page of {}", self.address)).to_owned())
    }

    /// The `code` of an error response, after checking that its body has the shape of every error.
    pub fn code(&self) -> String {
        let body = self.json();
        assert_eq!(fields(&body), ["code", "message", "status"], "{body}");
        assert_eq!(body["status"], self.status(), "{body}");
        assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        body["code"].as_str().unwrap().to_owned()
    }

    /// Asserts that the response is the one required while the database is unavailable.
    pub fn assert_unavailable(&self) {
        assert_eq!(self.status(), 503, "{self:?}");
        assert!(self.retry_after().is_some(), "{self:?}");
        trial::judge("a 503", self.took, Duration::from_secs(2));
    }

    /// Returns whether the response tells the client to retry. A 409 without `Retry-After` does not: the animal is taken.
    pub fn says_to_retry(&self) -> bool {
        let retry_after = self.retry_after().is_some();
        assert!(retry_after || self.status() != 503, "{self:?}");
        retry_after && matches!(self.status(), 409 | 503)
    }

    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status, headers and body for a snapshot, without what differs from run to run, and without what responses of the API
    /// have in common, which `tests/api/request_id.rs` and [`Self::code`] check.
    pub fn shown(&self) -> String {
        let varying = ["date", "x-request-id", "content-length"];
        let common =
            ["content-type: application/json\n", "cache-control: no-store\n", "x-content-type-options: nosniff\n"];
        let headers = self.head.headers.iter().filter(|(name, _)| !varying.contains(&name.as_str()));
        let lines = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        let lines = lines.filter(|line| !common.contains(&&**line));
        let shown = format!("{}\n{}\n{}\n", self.head.status, lines.collect::<String>(), self.body);
        shown.replace(&self.address.to_string(), "HOST")
    }
}

/// The length of the response that `bytes` start with, `None` until its head is complete.
fn response_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Some(end + length.map_or(0, |length| length.parse::<usize>().unwrap()))
}

/// Returns whether `bytes` are the whole response to HEAD.
fn is_complete_head(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\r\n\r\n")
}

/// Returns whether `bytes` contain a whole response.
pub fn is_complete(bytes: &[u8]) -> bool {
    response_length(bytes).is_some_and(|length| bytes.len() >= length)
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
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.expect("the response has a whole head"));
    }
    let head = bytes.len();
    bytes.resize(response_length(&bytes).unwrap(), 0);
    stream.read_exact(&mut bytes[head..]).await.unwrap();
    Response::parse(&bytes, address)
}
