//! A throwaway NATS server with JetStream, which a test may kill and restart.

use crate::postgres::free_port;
use crate::process::Killed;

/// A server of Debian's package. Killed on drop.
pub struct NatsServer {
    port: u16,
    folder: tempfile::TempDir,
    running: Option<Killed>,
}

impl NatsServer {
    pub fn start() -> Self {
        let mut broker = Self { port: free_port(), folder: tempfile::tempdir().unwrap(), running: None };
        broker.start_again();
        broker
    }

    /// Starts the server again on the same port with the same data.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the server is running");
        let port = self.port.to_string();
        let program = ["nats-server", "--addr", "127.0.0.1", "--port", &port, "--jetstream", "--store_dir", "."];
        self.running = Some(Killed::listening(&program, self.folder.path(), self.port));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        assert!(self.running.take().is_some(), "the server is running");
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}
