//! A stalled log: stderr is a pipe whose reader does not read. `neighbours.rs` has a stdout that is not read.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{FREE_PORTS, Folder, Killed, Request, TIMEOUT, raw, soon, within};

/// Length of a request's path, and about that of its log line, in bytes.
const LONG_PATH: usize = 2_000;
/// Number of requests whose log lines exceed the pipe and the queue together.
const FLOOD: usize = 4_000;
/// Requests per connection.
const BATCH: usize = 100;

/// A server whose log is read up to the line `listening`. Tests read the rest.
struct Stalled {
    process: Killed,
    log: BufReader<ChildStderr>,
    listening: Value,
}

impl Stalled {
    fn serve(folder: &Folder, line: &str) -> Self {
        Self::start(folder.command(&format!("{line} {FREE_PORTS}")).stdout(Stdio::null()))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { process: Killed(child), log, listening: Value::Null };
        server.listening = server.read_until("listening").0;
        server
    }

    fn address(&self, listener: &str) -> SocketAddr {
        self.listening[listener].as_str().unwrap().parse().unwrap()
    }

    /// Sends `count` requests with long paths, and checks that all are answered.
    async fn flood(&self, count: usize) {
        let path = "x".repeat(LONG_PATH);
        let request = |end| format!("GET /{path} HTTP/1.1\r\nHost: petstore\r\n{end}\r\n");
        let batch = request("").repeat(BATCH - 1) + &request("Connection: close\r\n");
        for _ in 0..count / BATCH {
            let answers = soon(raw(self.address("store"), batch.as_bytes())).await;
            assert_eq!(answers.matches("HTTP/1.1 404").count(), BATCH);
        }
    }

    async fn dropped_lines(&self) -> u64 {
        let scraped = soon(Request::new(self.address("ops"), "GET", "/metrics").send()).await;
        scraped.metric("petstore_log_lines_dropped_total") as u64
    }

    /// Reads the log up to a message. Returns its line and the lines before it.
    fn read_until(&mut self, message: &str) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let line = next_line(&mut self.log).unwrap_or_else(|| panic!("the log does not say {message:?}"));
            if line["message"] == message {
                return (line, before);
            }
            before.push(line);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        within(TIMEOUT, "the stop", || self.process.0.try_wait().unwrap().is_some());
        self.process.0.wait().unwrap()
    }
}

/// Reads the next line of the log. `None` at its end.
fn next_line(log: &mut BufReader<ChildStderr>) -> Option<Value> {
    if log.buffer().is_empty() {
        let limit = Timespec::try_from(TIMEOUT).unwrap();
        let readable = poll(&mut [PollFd::new(log.get_ref(), PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(readable, 1, "the process writes nothing and does not end");
    }
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
}

#[tokio::test]
async fn returning_reader_learns_how_many_lines_were_dropped() {
    let folder = Folder::new();
    let mut server = Stalled::serve(&folder, "serve --log-requests");
    server.flood(FLOOD).await;
    // Reading the metric is a request too, whose line is logged or dropped like the others.
    let already_dropped = server.dropped_lines().await;

    let (report, before) = server.read_until("log lines dropped");

    let dropped = report["lines"].as_u64().unwrap();
    assert!(report["level"] == "WARN" && dropped >= already_dropped, "{report}");
    let logged = before.iter().filter(|line| line["message"] == "request").count() as u64;
    assert_eq!(logged + dropped, FLOOD as u64 + 1, "every line is there or counted");
    assert_eq!(server.dropped_lines().await, dropped);
    server.read_until("request");
    // From now on, no line is dropped.
    soon(Request::new(server.address("store"), "GET", "/v1/elsewhere").header("x-request-id", "after").send()).await;
    let (line, _) = server.read_until("request");
    assert_eq!(line["request_id"], "after");
}

#[tokio::test]
async fn last_lines_before_a_stop_are_complete() {
    let folder = Folder::new();
    let mut server = Stalled::serve(&folder, "serve --log-requests");
    // Their lines exceed the pipe but fit into the queue.
    let requests = 500;
    server.flood(requests).await;

    server.signal(Signal::TERM);
    let (_, before) = server.read_until("stopping");

    assert_eq!(before.len(), requests);
    assert!(next_line(&mut server.log).is_none(), "nothing comes after it");
    assert_eq!(server.end().code(), Some(0));
}
