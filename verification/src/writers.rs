//! Clients that write one request after the other and record each outcome in a ledger.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::{Connection, Request, Response, Server, Stop, TIMEOUT, new_message, new_pet, trial};

use crate::ledger::Ledger;

/// Pause of a client after a 503.
const PAUSE: Duration = Duration::from_millis(10);

/// One in so many writes lacks a field, so that the database must not contain it.
const INVALID_EVERY: u32 = 50;

/// Number of clients and kind of their writes.
#[derive(Clone, Copy)]
pub struct Mix {
    pub clients: usize,
    /// One in so many clients sends messages. The others create animals.
    pub messages_one_in: usize,
    /// Messages are padded to this length.
    pub length: usize,
    /// Sends each write with its name as the idempotency key.
    pub keyed: bool,
}

impl Mix {
    pub const MIXED: Self = Self { clients: 32, messages_one_in: 4, length: 0, keyed: false };
}

/// Clients that run until they are stopped or the service ends.
pub struct Writers {
    stop: Arc<Stop>,
    clients: Vec<JoinHandle<Vec<Write>>>,
}

/// A write that was sent.
pub struct Write {
    message: bool,
    keyed: bool,
    name: String,
    request: Request,
}

impl Write {
    /// Sends the write again, to a restarted service, and records its outcome.
    pub fn send_again(&self, service: &Server, ledger: &Ledger) {
        let mut connection = Connection::open(address(service, self.message)).unwrap();
        self.send(&mut connection, ledger).expect("a response");
    }

    /// Returns the status of the response, `None` if the connection breaks. Settles a write with a key that was late.
    fn send(&self, connection: &mut Connection, ledger: &Ledger) -> Option<u16> {
        let mut response = connection.send(&self.request).ok()?;
        let began = Instant::now();
        while self.keyed && is_late(&response) && began.elapsed() < TIMEOUT {
            thread::sleep(PAUSE);
            response = connection.send(&self.request).ok()?;
        }
        ledger.answered(&self.name, &response);
        Some(response.status())
    }
}

/// Returns whether a short run must not judge this rejection: the write waited for 5 s or longer, or its key is still in use.
/// Its outcome is unknown.
pub fn is_late(response: &Response) -> bool {
    let is_late = response.status() == 409 || response.took >= Duration::from_secs(5);
    is_late && response.says_to_retry() && !trial::is_full()
}

impl Writers {
    /// Starts the clients. `run` is a prefix of every name and must be new to the ledger.
    pub fn start(service: &Server, key: &str, ledger: &Ledger, run: &str, mix: Mix) -> Self {
        let stop = Arc::new(Stop::new());
        let clients = (0..mix.clients).map(|number| {
            let message = number % mix.messages_one_in == 0;
            let client = Client {
                address: address(service, message),
                key: key.to_owned(),
                name: format!("{run}-{number}"),
                message,
                mix,
                ledger: ledger.clone(),
                stop: Arc::clone(&stop),
            };
            thread::spawn(move || client.work())
        });
        Self { clients: clients.collect(), stop }
    }

    /// Waits until the service has ended. Returns the writes without a response.
    pub fn join(self) -> Vec<Write> {
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }

    pub fn stop(self) {
        self.stop.request();
        self.join();
    }
}

fn address(service: &Server, message: bool) -> SocketAddr {
    if message { service.messages() } else { service.store() }
}

struct Client {
    address: SocketAddr,
    key: String,
    name: String,
    message: bool,
    mix: Mix,
    ledger: Ledger,
    stop: Arc<Stop>,
}

impl Client {
    /// Reconnects after a broken connection, if it can. Returns the writes without a response.
    fn work(&self) -> Vec<Write> {
        let is_stopped = || self.stop.is_requested();
        let (mut number, mut unanswered) = (0, Vec::new());
        while !is_stopped() {
            let Ok(mut connection) = Connection::open(self.address) else { break };
            while !is_stopped() {
                number += 1;
                let write = self.write(number);
                self.ledger.sent(&write.name);
                match write.send(&mut connection, &self.ledger) {
                    Some(503) => thread::sleep(PAUSE),
                    Some(_) => {}
                    None => {
                        unanswered.push(write);
                        break;
                    }
                }
            }
        }
        unanswered
    }

    fn write(&self, number: u32) -> Write {
        let mut name = format!("{}-{number};", self.name);
        let valid = !number.is_multiple_of(INVALID_EVERY);
        if self.message && valid {
            name.extend(std::iter::repeat_n('.', self.mix.length.saturating_sub(name.len())));
        }
        let path = if self.message { "/v1/messages" } else { "/v1/pets" };
        let body = match (self.message, valid) {
            (true, true) => new_message(&name),
            (false, true) => new_pet(&name),
            (_, false) => format!(r#"{{"other":"{name}"}}"#),
        };
        let mut request = Request::new(self.address, "POST", path).key(&self.key).json(body);
        if self.mix.keyed {
            request = request.header("idempotency-key", &name);
        }
        Write { message: self.message, keyed: self.mix.keyed, name, request }
    }
}
