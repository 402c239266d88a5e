//! A proxy before the service that lets chosen requests fail, by adding the preferences that simulate failures.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// `Retry-After` of the failed responses in seconds. Longer than the first pause of a client that does not read it.
pub const RETRY_AFTER: u64 = 2;

/// A POST that a client has sent.
pub struct Attempt {
    pub at: Instant,
    pub idempotency_key: Option<String>,
}

#[derive(Clone)]
pub struct FailingProxy {
    target: String,
    preferences: Arc<Mutex<VecDeque<&'static str>>>,
    attempts: Arc<Mutex<Vec<Attempt>>>,
}

impl FailingProxy {
    /// Starts a proxy to `target`, and returns it with its own address. Both begin with `http://`.
    pub fn start(target: &str) -> (Self, String) {
        let target = target.strip_prefix("http://").unwrap().to_owned();
        let proxy = Self { target, preferences: Arc::default(), attempts: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serving = proxy.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let proxy = serving.clone();
                // A client that closes its connection early fails its own test.
                thread::spawn(move || proxy.forward(&stream?));
            }
        });
        (proxy, address)
    }

    /// Adds a preference to each of the next requests with a key. Returns the attempts since the last call.
    pub fn fail_next(&self, preferences: &[&'static str]) -> Vec<Attempt> {
        assert!(self.preferences.lock().unwrap().is_empty(), "too few requests were sent");
        *self.preferences.lock().unwrap() = preferences.iter().copied().collect();
        std::mem::take(&mut self.attempts.lock().unwrap())
    }

    /// Forwards one request. The service closes the connection after its response.
    fn forward(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let (mut reader, mut head) = (BufReader::new(client), String::new());
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let header = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body)?;
        if head.starts_with("POST ") {
            let attempt = Attempt { at: Instant::now(), idempotency_key: header("idempotency-key") };
            self.attempts.lock().unwrap().push(attempt);
        }
        let preference = header("authorization").and_then(|_| self.preferences.lock().unwrap().pop_front());
        let prefer = preference.filter(|preference| !preference.is_empty());
        let prefer = prefer.map_or(String::new(), |preference| format!("prefer: {preference}\r\n"));

        let mut service = TcpStream::connect(&self.target)?;
        let head = head.strip_suffix("\r\n").unwrap();
        let lines = head.split_inclusive("\r\n").filter(|line| !line.to_lowercase().starts_with("connection:"));
        let head: String = lines.collect();
        service.write_all(format!("{head}connection: close\r\n{prefer}\r\n").as_bytes())?;
        service.write_all(&body)?;
        let mut response = Vec::new();
        service.read_to_end(&mut response)?;
        let (told, longer) = (b"retry-after: 1\r", format!("retry-after: {RETRY_AFTER}\r"));
        let at = response.windows(told.len()).position(|bytes| bytes == told);
        if let Some(at) = at.filter(|_| !prefer.is_empty()) {
            response.splice(at..at + told.len(), longer.into_bytes());
        }
        client.write_all(&response)
    }
}
