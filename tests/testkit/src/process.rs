//! The built program as a process. Nothing that it starts outlives the test or runs for ever.

use std::borrow::BorrowMut;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::blocking::{self, new_message, new_pet};
use crate::client::{Request, Response};
use crate::wait::{TIMEOUT, within};

/// Longer than any command takes on a busy machine. A process that runs longer hangs.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// The built program. Cargo puts it beside the folder of the test binaries.
pub fn petstore() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).expect("a test binary is in target/PROFILE/deps");
        profile.join("petstore").into_os_string().into_string().unwrap()
    });
    &PATH
}

/// Keeps only what a program needs to run: terminal widths, colours and `PETSTORE_…` change what is printed.
pub(crate) fn with_clean_environment(command: &mut Command) {
    let kept = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR");
    command.env_clear().envs(kept);
}

/// The folder that commands run in. It contains `petstore-data` and files named without a path.
pub struct Folder(tempfile::TempDir);

#[expect(clippy::new_without_default, reason = "a folder is made on disk, which `default` does not suggest")]
impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder with a database and the account `ada@example.com`.
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

    /// The sorted names of the entries in a folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A command line of the program, split at white space.
    pub fn command(&self, line: &str) -> Command {
        let mut command = self.program(petstore());
        command.args(line.split_whitespace());
        command
    }

    /// Another program, in the same folder and with the same minimal environment.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.0.path()).stdin(Stdio::null());
        with_clean_environment(&mut command);
        command
    }

    pub fn run(&self, line: &str) -> Ended {
        Process::start(&mut self.command(line)).end()
    }

    /// Runs a command with `input` on stdin.
    pub fn run_with(&self, line: &str, input: impl AsRef<[u8]>) -> Ended {
        let mut process = Process::start(self.command(line).stdin(Stdio::piped()));
        let mut stdin = process.child.stdin.take().unwrap();
        // A command that fails early does not read its input.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        process.end()
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
    /// `None` if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The peak of resident memory in bytes, sampled.
    pub peak: u64,
}

impl Ended {
    /// The lines of the log, `LEVEL message` each. Panics if stderr has a line other than JSON with a time.
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

/// A process whose output is captured. Killed on drop.
pub struct Process {
    child: Child,
    stdout: Option<Lines>,
    stderr: Lines,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with_stdout(command, Stdio::piped())
    }

    pub fn start_with_stdout(command: &mut Command, stdout: Stdio) -> Self {
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(|stdout| Lines::of(stdout, |_| ()));
        // A failing test shows the log.
        let stderr = Lines::of(child.stderr.take().unwrap(), |line| eprint!("{line}"));
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stdin, which the command must have set to a pipe.
    pub fn input(&mut self) -> &mut impl Write {
        self.child.stdin.as_mut().expect("stdin is a pipe")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Suspends all threads, so that none of them runs when this returns. [`Signal::CONT`] continues them.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |thread: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        within(TIMEOUT, "stopping", || fs::read_dir(self.proc("task")).unwrap().all(is_stopped));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended(TIMEOUT)
    }

    /// Waits until the process ends without being told to.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        let mut ended = None;
        within(limit, "ending", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Waits for the end and returns all remaining output.
    pub fn end(mut self) -> Ended {
        let started = Instant::now();
        let mut peak = 0;
        let status = loop {
            peak = peak.max(self.status_bytes("VmHWM:"));
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if started.elapsed() > END_TIMEOUT => panic!("the process does not end"),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let stdout = self.stdout.as_ref().map_or(String::new(), Lines::rest);
        Ended { code: status.code(), stdout, stderr: self.stderr.rest(), peak }
    }

    /// Waits until the process has a handler for SIGINT. Returns false if the process has ended.
    pub fn catches_sigint(&self) -> bool {
        let started = Instant::now();
        loop {
            let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
            // A process that has ended catches no signals.
            let Some(mask) = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")) else { return false };
            if u64::from_str_radix(mask, 16).unwrap() & 2 != 0 {
                return true;
            }
            if status.contains("State:\tZ") {
                return false;
            }
            assert!(started.elapsed() < END_TIMEOUT, "the process does not catch SIGINT");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The number of open sockets.
    pub fn sockets(&self) -> usize {
        let descriptors = fs::read_dir(self.proc("fd")).unwrap();
        let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// Processor time so far, in user and system mode together.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // Linux counts in hundredths of a second on every architecture.
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// A line of `/proc/PID/status` in bytes, zero if the process has ended.
    fn status_bytes(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.pid()).into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines with their ends, read in the background so that the process never waits for its reader.
struct Lines(Mutex<Receiver<String>>);

impl Lines {
    fn of(from: impl Read + Send + 'static, seen: impl Fn(&str) + Send + 'static) -> Self {
        let (to, read) = mpsc::channel();
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).unwrap() > 0 {
                let line = String::from_utf8(std::mem::take(&mut line)).unwrap();
                seen(&line);
                // The test may have dropped the process.
                let _ = to.send(line);
            }
        });
        Self(Mutex::new(read))
    }

    /// The next line. `None` after the last one.
    fn next(&self) -> Option<String> {
        match self.0.lock().unwrap().recv_timeout(END_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process neither writes nor ends"),
        }
    }

    fn rest(&self) -> String {
        self.0.lock().unwrap().iter().collect()
    }
}

/// `serve` or `quickstart`, listening.
pub struct Server {
    process: Process,
    /// Address of the `store` listener, empty if it is closed.
    pub store: String,
    /// Address of the `messages` listener, empty if it is closed.
    pub messages: String,
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

    fn try_start_skipping(mut command: impl BorrowMut<Command>, skip: impl Fn(&str) -> bool) -> Option<Self> {
        let process = Process::start(command.borrow_mut());
        let mut before = Vec::new();
        loop {
            let line = process.stderr.next()?;
            if skip(&line) {
                continue;
            }
            let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if listening["message"] == "listening" {
                let address = |listener: &str| listening[listener].as_str().unwrap_or_default().to_owned();
                let (store, messages) = (address("store"), address("messages"));
                return Some(Self { process, store, messages, listening, before });
            }
            before.push(listening["message"].as_str().unwrap().to_owned());
        }
    }

    /// The address of the listener `store`, `messages` or `ops`.
    pub fn address(&self, listener: &str) -> SocketAddr {
        self.listening[listener].as_str().unwrap().parse().unwrap()
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
        Request::new(self.address("store"), "GET", path).key(key).send().await
    }

    pub fn get(&self, path: &str, key: &str) -> blocking::Response {
        blocking::get(&self.store, path, key)
    }

    pub fn create_pet(&self, key: &str, name: &str) -> blocking::Response {
        blocking::post(&self.store, "/v1/pets", key, &new_pet(name))
    }

    pub fn send_message(&self, key: &str, text: &str) -> blocking::Response {
        blocking::post(&self.messages, "/v1/messages", key, &new_message(text))
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
