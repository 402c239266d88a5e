//! Runs the built program in a folder of its own. Nothing it starts outlives the test, nor runs for ever.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::support::{Answer, Request};

/// The built program.
pub const PETSTORE: &str = env!("CARGO_BIN_EXE_petstore");

/// Longer than anything here takes on a busy machine: beyond it, a process hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder that commands run in, so that `petstore-data` and files named without a path lie in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// One that has a database and the account `ada@example.com`.
    pub fn with_account() -> Self {
        let folder = Self::new();
        folder.succeed("account create ada@example.com");
        folder
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A command line, split at white space.
    pub fn command(&self, line: &str) -> Command {
        let mut command = self.program(PETSTORE);
        command.args(line.split_whitespace());
        command
    }

    /// Another program, in the same place and with the same bare environment.
    pub fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).stdin(Stdio::null());
        // Not only PETSTORE_…: the width of a terminal, colours and the like shape what is printed too.
        let kept = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR");
        command.env_clear().envs(kept);
        command
    }

    pub fn run(&self, line: &str) -> Ended {
        Running::start(&mut self.command(line)).end()
    }

    /// The same with `input` on stdin.
    pub fn run_with(&self, line: &str, input: impl AsRef<[u8]>) -> Ended {
        let mut running = Running::start(self.command(line).stdin(Stdio::piped()));
        let mut stdin = running.child.stdin.take().unwrap();
        // A command that refuses early does not read: that is not this writer's failure.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        running.end()
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub fn succeed(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    /// A new key of `ada@example.com`.
    pub fn key(&self) -> String {
        self.succeed("key create --account ada@example.com --name test").trim_end().to_owned()
    }

    /// `key list --json`.
    pub fn keys(&self) -> Value {
        serde_json::from_str(&self.succeed("key list --json")).unwrap()
    }

    /// Starts a command that serves, on free ports, and waits until it listens.
    pub fn serve(&self, line: &str) -> Server {
        let mut command = self.command(line);
        command.args(["--listen=127.0.0.1:0", "--messages-listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]);
        Server::start(&mut command)
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Nothing where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The most memory it has held at once, in bytes, as far as was looked.
    pub peak: u64,
}

impl Ended {
    /// The lines of the log, `LEVEL message` each. Fails where stderr holds anything but JSON lines with a time.
    pub fn log(&self) -> String {
        let lines = self.stderr.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            assert!(line["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
            format!("{} {}\n", line["level"].as_str().unwrap(), line["message"].as_str().unwrap())
        });
        lines.collect()
    }

    /// The exit code and all output of a one-shot command, for a snapshot.
    pub fn shown(&self) -> String {
        format!("exit {:?}\n{}{}", self.code.unwrap(), self.stdout, self.stderr)
    }

    /// The exit code and all output of `serve` or `quickstart`, which write a log.
    pub fn shown_log(&self) -> String {
        format!("exit {:?}\n{}{}", self.code.unwrap(), self.stdout, self.log())
    }

    /// The exit code and stderr after wrong usage, which prints nothing to stdout.
    pub fn usage(&self) -> String {
        assert_eq!(self.stdout, "");
        format!("exit {:?}\n{}", self.code.unwrap(), self.stderr)
    }
}

/// A process that is killed with its handle.
pub struct Running {
    child: Child,
    stdout: Option<Receiver<String>>,
    stderr: Receiver<String>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with_stdout(command, Stdio::piped())
    }

    pub fn start_with_stdout(command: &mut Command, stdout: Stdio) -> Self {
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().map(lines), lines(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the process has a handler for SIGINT. Returns false if the process has ended.
    pub fn catches_sigint(&self) -> bool {
        let started = Instant::now();
        loop {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
            // A process that has ended catches no signals.
            let Some(mask) = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")) else { return false };
            if u64::from_str_radix(mask, 16).unwrap() & 2 != 0 {
                return true;
            }
            if status.contains("State:\tZ") {
                return false;
            }
            assert!(started.elapsed() < PATIENCE, "the process does not catch SIGINT");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ended {
        let started = Instant::now();
        let mut peak = 0;
        let status = loop {
            peak = peak.max(self.peak());
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if started.elapsed() > PATIENCE => panic!("the process does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let stdout = self.stdout.iter().flatten().collect();
        Ended { code: status.code(), stdout, stderr: self.stderr.iter().collect(), peak }
    }

    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads away what a process writes, so that it never waits for us; each line keeps its end.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (to, read) = mpsc::channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).unwrap() > 0 {
            // Nobody may be left to read it.
            let _ = to.send(String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
    });
    read
}

/// `serve` or `quickstart`, listening.
pub struct Server {
    pub running: Running,
    /// The line `listening` of its log.
    pub listening: Value,
    /// The messages of its log before that line.
    pub before: Vec<String>,
}

impl Server {
    pub fn start(command: &mut Command) -> Self {
        Self::start_after(command, |_| false)
    }

    /// The same for a command that first says something of its own, lines that are to `skip`.
    pub fn start_after(command: &mut Command, skip: impl Fn(&str) -> bool) -> Self {
        let running = Running::start(command);
        let mut before = Vec::new();
        loop {
            let line =
                running.stderr.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not listen: {before:?}"));
            if skip(&line) {
                continue;
            }
            let parsed: Value = serde_json::from_str(&line).unwrap();
            if parsed["message"] == "listening" {
                return Self { running, listening: parsed, before };
            }
            before.push(parsed["message"].as_str().unwrap().to_owned());
        }
    }

    /// The address of the door `store`, `messages` or `ops`.
    pub fn address(&self, door: &str) -> SocketAddr {
        self.listening[door].as_str().unwrap().parse().unwrap()
    }

    /// Waits for a message in its log, and returns the line.
    pub fn logged(&self, message: &str) -> Value {
        loop {
            let line = self.running.stderr.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("the log does not say {message:?}"));
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["message"] == message {
                return line;
            }
        }
    }

    /// `GET` on the store door.
    pub async fn get(&self, path: &str, key: &str) -> Answer {
        Request::new(self.address("store"), "GET", path).key(key).send().await
    }

    /// What it prints on stdout up to a line that starts with `last`.
    pub fn printed_until(&self, last: &str) -> String {
        let mut printed = String::new();
        loop {
            let line = self.running.stdout.as_ref().unwrap().recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{last:?} does not come: {printed}"));
            printed.push_str(&line);
            if line.starts_with(last) {
                return printed;
            }
        }
    }

    /// Sends a signal and waits for the end.
    pub fn stop(self, signal: Signal) -> Ended {
        self.running.signal(signal);
        self.running.end()
    }
}
