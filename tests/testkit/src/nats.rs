//! A throwaway NATS server with JetStream, which a test may kill and restart.

use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::Config;
use futures_util::StreamExt;

use crate::postgres::free_port;
use crate::process::server_program;
use crate::wait::TIMEOUT;

/// The stream of the production deployment.
pub const STREAM: &str = "PETSTORE_MESSAGES";

/// A server of Debian's package. Killed on drop.
pub struct NatsServer {
    port: u16,
    folder: tempfile::TempDir,
    flags: Vec<String>,
    child: Option<Child>,
}

/// A message as the stream stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: String,
    pub account: String,
    pub subject: String,
    pub body: String,
}

impl NatsServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further flags of `nats-server`.
    pub fn start_with(flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut broker = Self { port: free_port(), folder: tempfile::tempdir().unwrap(), flags, child: None };
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
        command.arg(self.folder.path()).args(&self.flags);
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

    /// The messages of a stream in order. Empty if the stream does not exist.
    pub fn stored(&self, stream: &str) -> Vec<Stored> {
        self.stored_by(stream, ConnectOptions::new())
    }

    /// The messages of a stream, read with credentials.
    pub fn stored_by(&self, stream: &str, options: ConnectOptions) -> Vec<Stored> {
        wait_for(read(&self.url(), stream, options))
    }

    /// Creates a stream that stores these subjects, or changes the subjects of an existing one.
    pub fn create(&self, stream: &str, subjects: &[&str]) {
        let subjects = subjects.iter().map(|&subject| subject.to_owned()).collect();
        let config = Config { name: stream.to_owned(), subjects, ..Config::default() };
        wait_for(async { self.context().await.create_or_update_stream(config).await.unwrap() });
    }

    pub fn delete(&self, stream: &str) {
        let deleted = wait_for(async { self.context().await.delete_stream(stream).await.unwrap() });
        assert!(deleted.success);
    }

    async fn context(&self) -> Context {
        async_nats::jetstream::new(async_nats::connect(self.url()).await.unwrap())
    }
}

/// Runs a future on a separate thread, because some tests run inside a runtime.
fn wait_for<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(future)
        });
        waiting.join().unwrap()
    })
}

async fn read(url: &str, stream: &str, options: ConnectOptions) -> Vec<Stored> {
    let client = options.retry_on_initial_connect().connect(url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let began = Instant::now();
    // A server that has just started reports for a moment that the stream does not exist.
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

impl Drop for NatsServer {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
