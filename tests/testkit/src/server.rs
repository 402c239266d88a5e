//! The built program as a service.

use std::borrow::BorrowMut;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::Command;

use serde_json::Value;

use crate::client::{Request, Response, new_message, new_pet};
use crate::process::{Ended, Process, Signal};

/// `serve` or `quickstart`, listening.
pub struct Server {
    process: Process,
    /// The line `listening` of the log.
    pub listening: Value,
    /// The messages of the log before that line.
    pub before: Vec<String>,
}

impl Server {
    pub fn start(command: impl BorrowMut<Command>) -> Self {
        Self::try_start(command).expect("the service listens")
    }

    /// `None` if the process ends before it listens.
    pub fn try_start(command: impl BorrowMut<Command>) -> Option<Self> {
        Self::try_start_skipping(command, |_| false)
    }

    /// Starts a command that writes lines of its own to stderr first, which `skip` recognises.
    pub fn start_skipping(command: impl BorrowMut<Command>, skip: impl Fn(&str) -> bool) -> Self {
        Self::try_start_skipping(command, skip).expect("the service listens")
    }

    /// Like [`Self::start_skipping`]. `None` if the process ends before it listens.
    pub fn try_start_skipping(mut command: impl BorrowMut<Command>, skip: impl Fn(&str) -> bool) -> Option<Self> {
        let process = Process::start(command.borrow_mut());
        let mut before = Vec::new();
        loop {
            let line = process.stderr.next()?;
            if skip(&line) {
                continue;
            }
            let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if listening["message"] == "listening" {
                return Some(Self { process, listening, before });
            }
            before.push(listening["message"].as_str().unwrap().to_owned());
        }
    }

    /// The address of the listener `store`, `messages` or `ops`.
    pub fn address(&self, listener: &str) -> SocketAddr {
        self.listening[listener].as_str().unwrap().parse().unwrap()
    }

    pub fn store(&self) -> SocketAddr {
        self.address("store")
    }

    pub fn messages(&self) -> SocketAddr {
        self.address("messages")
    }

    /// Waits for a message in the log and returns its line.
    pub fn logged(&self, message: &str) -> Value {
        loop {
            let line = self.stderr.next().unwrap_or_else(|| panic!("the log does not contain {message:?}"));
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["message"] == message {
                return line;
            }
        }
    }

    /// Output on stdout up to a line that starts with `last`.
    pub fn printed_until(&self, last: &str) -> String {
        let mut printed = String::new();
        loop {
            let line = self.stdout.as_ref().unwrap().next();
            let line = line.unwrap_or_else(|| panic!("{last:?} is not printed: {printed}"));
            printed.push_str(&line);
            if line.starts_with(last) {
                return printed;
            }
        }
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.end()
    }

    pub fn end(self) -> Ended {
        self.process.end()
    }

    /// `GET` on the store listener, without blocking the test's runtime.
    pub async fn request(&self, path: &str, key: &str) -> Response {
        Request::new(self.store(), "GET", path).key(key).send().await
    }

    pub fn get(&self, path: &str, key: &str) -> Response {
        Request::new(self.store(), "GET", path).key(key).send_blocking()
    }

    /// A sample of `/metrics` on the operations listener.
    pub fn metric(&self, sample: &str) -> f64 {
        Request::new(self.address("ops"), "GET", "/metrics").send_blocking().metric(sample)
    }

    pub fn create_pet(&self, key: &str, name: &str) -> Response {
        self.pet_request(key, name).send_blocking()
    }

    /// A request that creates an animal.
    pub fn pet_request(&self, key: &str, name: &str) -> Request {
        Request::new(self.store(), "POST", "/v1/pets").key(key).json(new_pet(name))
    }

    pub fn send_message(&self, key: &str, text: &str) -> Response {
        Request::new(self.messages(), "POST", "/v1/messages").key(key).json(new_message(text)).send_blocking()
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
