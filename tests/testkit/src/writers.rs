//! Clients that write one request after the other and record each outcome in a ledger.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::blocking::read_response;
use crate::ledger::Ledger;
use crate::process::Server;
use crate::wait::TIMEOUT;

/// How long a client waits after a 503.
const REST: Duration = Duration::from_millis(10);

/// One in so many writes lacks a field, so that the database must not contain it.
const INVALID_EVERY: u32 = 50;

/// Which writes the clients send.
#[derive(Clone, Copy)]
pub struct Mix {
    pub clients: usize,
    /// One in so many clients sends messages. The others create animals.
    pub messages_one_in: usize,
    /// Messages are padded to this length.
    pub length: usize,
    /// Whether each write has an idempotency key, which is its name.
    pub keyed: bool,
}

impl Mix {
    pub const MIXED: Self = Self { clients: 32, messages_one_in: 4, length: 0, keyed: false };
}

/// Clients that run until they are stopped or the service ends.
pub struct Writers {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Write>>>,
}

/// A write that was sent.
pub struct Write {
    message: bool,
    name: String,
    request: String,
}

impl Write {
    /// Sends the write again and records its outcome.
    pub fn send_again(&self, service: &Server, ledger: &Ledger) {
        let mut stream = TcpStream::connect(if self.message { &service.messages } else { &service.store }).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        self.exchange(&mut stream, ledger).expect("a response");
    }

    /// The status of the response. `None` if there is none.
    fn exchange(&self, stream: &mut TcpStream, ledger: &Ledger) -> Option<u16> {
        stream.write_all(self.request.as_bytes()).ok()?;
        let (status, body) = read_response(stream)?;
        ledger.answered(&self.name, status, &body);
        Some(status)
    }
}

impl Writers {
    /// Starts the clients. `run` is a prefix of every name and must be new to the ledger.
    pub fn start(service: &Server, key: &str, ledger: &Ledger, run: &str, mix: Mix) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..mix.clients).map(|number| {
            let message = number % mix.messages_one_in == 0;
            let client = Client {
                address: if message { service.messages.clone() } else { service.store.clone() },
                key: key.to_owned(),
                message,
                length: mix.length,
                keyed: mix.keyed,
                ledger: ledger.clone(),
            };
            let (stop, name) = (Arc::clone(&stop), format!("{run}-{number}"));
            thread::spawn(move || client.work(&name, &stop))
        });
        Self { clients: clients.collect(), stop }
    }

    /// Waits until the service has ended. Returns the writes without a response.
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
    /// Reconnects after a broken connection, if it can. Returns the writes without a response.
    fn work(&self, name: &str, stop: &AtomicBool) -> Vec<Write> {
        let (mut number, mut unanswered) = (0, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let Ok(mut stream) = TcpStream::connect(&self.address) else { break };
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
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
