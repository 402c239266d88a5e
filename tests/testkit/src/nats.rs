//! A throwaway NATS server with JetStream, which a test may kill and restart.

use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::postgres::free_port;
use crate::process::server_program;
use crate::wait::TIMEOUT;

/// A server of Debian's package. Killed on drop.
pub struct NatsServer {
    port: u16,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl NatsServer {
    pub fn start() -> Self {
        let mut broker = Self { port: free_port(), folder: tempfile::tempdir().unwrap(), child: None };
        broker.start_again();
        broker
    }

    /// Starts the server again on the same port with the same data.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server is running");
        // The server is killed when the thread that started it ends.
        let mut command = server_program("setpriv");
        command.args(["--pdeathsig", "KILL", "nats-server"]);
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"]);
        command.arg(self.folder.path());
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        self.child = Some(child.expect("nats-server is not installed: run scripts/test, which installs it"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < TIMEOUT, "nats-server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
