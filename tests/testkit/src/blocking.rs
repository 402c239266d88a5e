//! A blocking HTTP client with one connection per request, for tests whose faults hit threads and processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::trial::is_full;
use crate::wait::TIMEOUT;

/// A response as it was received, and how long it took.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub text: String,
    pub took: Duration,
}

/// Sends a GET without a key. `None` if there is no response.
pub fn try_get(address: &str, path: &str) -> Option<Response> {
    send(address, "GET", path, "", "", "").ok()
}

pub fn get(address: &str, path: &str, key: &str) -> Response {
    send(address, "GET", path, key, "", "").unwrap()
}

/// Sends a POST to the listener at `address`.
pub fn post(address: &str, path: &str, key: &str, body: &str) -> Response {
    send(address, "POST", path, key, "", body).unwrap()
}

/// Sends a POST with an `Idempotency-Key`.
pub fn post_once(address: &str, path: &str, key: &str, once: &str, body: &str) -> Response {
    send(address, "POST", path, key, &format!("Idempotency-Key: {once}\r\n"), body).unwrap()
}

/// Creates an animal at the listener at `address`. `None` if there is no response.
pub fn try_create_pet(address: &str, key: &str, name: &str) -> Option<Response> {
    send(address, "POST", "/v1/pets", key, "", &new_pet(name)).ok()
}

/// Sends a message to the listener at `address`. `None` if there is no response.
pub fn try_send_message(address: &str, key: &str, text: &str) -> Option<Response> {
    send(address, "POST", "/v1/messages", key, "", &new_message(text)).ok()
}

/// Sends JSON with further `headers`, each ending in CRLF.
fn send(address: &str, method: &str, path: &str, key: &str, headers: &str, body: &str) -> std::io::Result<Response> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    exchange(address, &request)
}

/// Sends a request that asks the server to close the connection, and reads until it does.
pub fn exchange(address: &str, request: &str) -> std::io::Result<Response> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no response: {text}")))?;
    Ok(Response { status, text, took: began.elapsed() })
}

/// Reads one response from a connection on which others may follow: its status and body. `None` if the connection
/// ends first.
pub fn read_response(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut response = Vec::new();
    let mut chunk = [0; 16_384];
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        response.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&response);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return Some((head[9..12].parse().unwrap(), body.to_owned()));
            }
        }
    }
}

impl Response {
    /// Asserts that the response is the one required while the database is unavailable.
    pub fn assert_unavailable(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        assert!(self.text.contains("\r\nretry-after: "), "{self:?}");
        // Times mean little on a busy machine that runs other tests.
        assert!(self.took <= Duration::from_secs(if is_full() { 2 } else { 10 }), "{self:?}");
    }

    /// Whether the response tells the client to retry. A 409 without `Retry-After` does not: the animal is taken.
    pub fn says_to_retry(&self) -> bool {
        let retry_after = self.text.contains("\r\nretry-after: ");
        assert!(retry_after || self.status != 503, "{self:?}");
        retry_after && matches!(self.status, 409 | 503)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.body()).unwrap()
    }

    pub fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().1
    }

    pub fn is_replayed(&self) -> bool {
        self.text.contains("\r\nidempotent-replayed: true\r\n")
    }
}

/// The body of a request for an animal.
pub fn new_pet(name: &str) -> String {
    format!(r#"{{"name":"{name}","categoryId":1}}"#)
}

/// The body of a request for a message.
pub fn new_message(text: &str) -> String {
    format!(r#"{{"message":"{text}"}}"#)
}
