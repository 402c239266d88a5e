//! A throwaway NATS server with JetStream for a test: gone with it, and may be killed and started again before.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use futures_util::StreamExt;

/// Where production's messages go.
pub const STREAM: &str = "PETSTORE_MESSAGES";

/// What a server of Debian's package needs to run for a test alone.
pub struct Broker {
    port: u16,
    folder: tempfile::TempDir,
    flags: Vec<String>,
    child: Option<Child>,
}

/// A message as the stream keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: String,
    pub account: String,
    pub subject: String,
    pub body: String,
}

impl Broker {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more flags of `nats-server`.
    pub fn start_with(flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut broker = Self { port: free_port(), folder: tempfile::tempdir().unwrap(), flags, child: None };
        broker.start_again();
        broker
    }

    /// Starts it again where it was, with what it has kept.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        // It dies with the thread that starts it, be that by `kill -9`. Debian keeps servers where only root looks.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nats-server"]).env("PATH", path());
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"]);
        command.arg(self.folder.path()).args(&self.flags);
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        self.child = Some(child.expect("nats-server is not installed: run scripts/test, which installs it"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(20), "nats-server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// All that a stream has, in its order; nothing where there is no stream.
    pub fn stored(&self, stream: &str) -> Vec<Stored> {
        self.stored_by(stream, async_nats::ConnectOptions::new())
    }

    /// The same for who shows who they are.
    pub fn stored_by(&self, stream: &str, options: async_nats::ConnectOptions) -> Vec<Stored> {
        // On a thread of its own, since some tests are inside a runtime.
        std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(read(&self.url(), stream, options))
            });
            read.join().unwrap()
        })
    }
}

async fn read(url: &str, stream: &str, options: async_nats::ConnectOptions) -> Vec<Stored> {
    let client = options.retry_on_initial_connect().connect(url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let began = Instant::now();
    // A server that was just started says for a moment that it has none.
    let stream = loop {
        match context.get_stream(stream).await {
            Ok(stream) => break stream,
            Err(_) if began.elapsed() < Duration::from_secs(3) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(_) => return Vec::new(),
        }
    };
    let count = stream.get_info().await.unwrap().state.messages;
    let all = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
    let consumer = stream.create_consumer(all).await.unwrap();
    let mut messages = consumer.messages().await.unwrap().take(usize::try_from(count).unwrap());
    let mut stored = Vec::new();
    while let Some(message) = messages.next().await {
        let message = message.unwrap();
        let header =
            |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name)).map(ToString::to_string);
        stored.push(Stored {
            id: header("Nats-Msg-Id").unwrap_or_default(),
            account: header("Petstore-Account").unwrap_or_default(),
            subject: message.subject.to_string(),
            body: String::from_utf8(message.payload.to_vec()).unwrap(),
        });
    }
    stored
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn path() -> String {
    format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}

/// A port below those that systems give to clients: a server that was killed must find it free when it starts again.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(17).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 11_000 + (next % 8_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
