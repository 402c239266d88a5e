//! Clients that write, one request after the other, and note in a ledger what became of each.

use std::io::{Read, Write as _};
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
    /// Whether each write has an idempotency key, which is its name.
    pub keyed: bool,
}

impl Kind {
    pub const MIXED: Self = Self { clients: 32, messages_one_in: 4, length: 0, keyed: false };
}

/// Clients at work, until they are stopped or the service is gone.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Write>>>,
}

/// A write as it was sent.
pub struct Write {
    message: bool,
    name: String,
    request: String,
}

impl Write {
    /// Sends it again, and notes what becomes of it.
    pub fn send_again(&self, service: &Process, ledger: &Ledger) {
        let mut stream = TcpStream::connect(if self.message { &service.messages } else { &service.store }).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.exchange(&mut stream, ledger).expect("an answer");
    }

    /// The status of the answer, or nothing where none came.
    fn exchange(&self, stream: &mut TcpStream, ledger: &Ledger) -> Option<u16> {
        stream.write_all(self.request.as_bytes()).ok()?;
        let (status, body) = read_answer(stream)?;
        ledger.answered(&self.name, status, &body);
        Some(status)
    }
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
                keyed: kind.keyed,
                ledger: ledger.clone(),
            };
            let (stop, name) = (Arc::clone(&stop), format!("{run}-{number}"));
            thread::spawn(move || client.work(&name, &stop))
        });
        Self { clients: clients.collect(), stop }
    }

    /// Waits for the end of a service that is about to go away. What was not answered.
    pub fn join(self) -> Vec<Write> {
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
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
    keyed: bool,
    ledger: Ledger,
}

impl Client {
    /// Goes on after a broken connection as long as a new one can be had. What was not answered.
    fn work(&self, name: &str, stop: &AtomicBool) -> Vec<Write> {
        let (mut number, mut unanswered) = (0, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let Ok(mut stream) = TcpStream::connect(&self.address) else { break };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let write = self.write(format!("{name}-{number};"), number);
                self.ledger.sent(&write.name);
                let Some(status) = write.exchange(&mut stream, &self.ledger) else {
                    unanswered.push(write);
                    break;
                };
                if status == 503 {
                    thread::sleep(REST);
                }
            }
        }
        unanswered
    }

    fn write(&self, mut name: String, number: u32) -> Write {
        let valid = !number.is_multiple_of(INVALID_EVERY);
        if self.message && valid {
            name.extend(std::iter::repeat_n('.', self.length.saturating_sub(name.len())));
        }
        let (path, body) = match (self.message, valid) {
            (true, true) => ("/v1/messages", format!(r#"{{"message":"{name}"}}"#)),
            (true, false) => ("/v1/messages", format!(r#"{{"text":"{name}"}}"#)),
            (false, true) => ("/v1/pets", format!(r#"{{"name":"{name}","categoryId":1}}"#)),
            (false, false) => ("/v1/pets", format!(r#"{{"name":"{name}"}}"#)),
        };
        let once = if self.keyed { format!("Idempotency-Key: {name}\r\n") } else { String::new() };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{once}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        Write { message: self.message, name, request }
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
