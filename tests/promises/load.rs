//! Clients that write, one request after the other, and note in a ledger what became of each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::ledger::Ledger;
use crate::process::{PATIENCE, Process};

/// How long a client rests after a 503.
const REST: Duration = Duration::from_millis(10);

/// One in so many writes lacks a field, so that there is something that must not be there.
const INVALID_EVERY: u32 = 50;

/// What is written.
#[derive(Clone, Copy)]
pub struct Kind {
    pub clients: usize,
    /// Of so many clients, one sends messages, and the others add animals.
    pub messages_one_in: usize,
    /// Messages are filled up to this length.
    pub length: usize,
}

impl Kind {
    pub const MIXED: Self = Self { clients: 32, messages_one_in: 4, length: 0 };
}

/// Clients at work, until they are stopped or the service is gone.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// `run` begins every name, and is one that the ledger has not seen.
    pub fn start(service: &Process, key: &str, ledger: &Ledger, run: &str, kind: Kind) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..kind.clients).map(|number| {
            let message = number % kind.messages_one_in == 0;
            let client = Client {
                address: if message { service.messages.clone() } else { service.store.clone() },
                key: key.to_owned(),
                message,
                length: kind.length,
                ledger: ledger.clone(),
            };
            let (stop, name) = (Arc::clone(&stop), format!("{run}-{number}"));
            thread::spawn(move || client.work(&name, &stop))
        });
        Self { clients: clients.collect(), stop }
    }

    /// Waits for the end of a service that is about to go away.
    pub fn join(self) {
        for client in self.clients {
            client.join().unwrap();
        }
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.join();
    }
}

struct Client {
    address: String,
    key: String,
    message: bool,
    length: usize,
    ledger: Ledger,
}

impl Client {
    /// Goes on after a broken connection as long as a new one can be had.
    fn work(&self, name: &str, stop: &AtomicBool) {
        let mut number = 0;
        while !stop.load(Ordering::SeqCst) {
            let Ok(mut stream) = TcpStream::connect(&self.address) else { return };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let Some(status) = self.write(&mut stream, &format!("{name}-{number};"), number) else { break };
                if status == 503 {
                    thread::sleep(REST);
                }
            }
        }
    }

    /// One write: the status of its answer, or nothing where none came.
    fn write(&self, stream: &mut TcpStream, name: &str, number: u32) -> Option<u16> {
        let valid = !number.is_multiple_of(INVALID_EVERY);
        let (path, body) = match (self.message, valid) {
            (true, true) => {
                let filler = ".".repeat(self.length.saturating_sub(name.len()));
                return self.exchange(stream, "/v1/messages", &format!("{name}{filler}"), "message", "");
            }
            (true, false) => ("/v1/messages", "text"),
            (false, true) => return self.exchange(stream, "/v1/pets", name, "name", r#","categoryId":1"#),
            (false, false) => ("/v1/pets", "name"),
        };
        self.exchange(stream, path, name, body, "")
    }

    fn exchange(&self, stream: &mut TcpStream, path: &str, name: &str, field: &str, more: &str) -> Option<u16> {
        let body = format!(r#"{{"{field}":"{name}"{more}}}"#);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        self.ledger.sent(name);
        stream.write_all(request.as_bytes()).ok()?;
        let (status, body) = read_answer(stream)?;
        self.ledger.answered(name, status, &body);
        Some(status)
    }
}

/// Reads an answer whole; nothing where the service went away in between.
pub fn read_answer(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut answer = Vec::new();
    let mut chunk = [0; 16_384];
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        answer.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return Some((head[9..12].parse().unwrap(), body.to_owned()));
            }
        }
    }
}
