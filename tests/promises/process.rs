//! The built program, as a process that may be killed.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::trial::is_full;

/// Longer than any answer may take: beyond it, a process hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

const PETSTORE: &str = env!("CARGO_BIN_EXE_petstore");

/// Serving, on free ports.
pub const SERVE: &str = "serve --listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";

/// Where the data lies, as a variable of the environment says it.
#[derive(Clone)]
pub struct Database {
    variable: &'static str,
    value: OsString,
    /// The command that begins every command, where one is needed to get there.
    by: Vec<OsString>,
}

impl Database {
    pub fn folder(data_dir: &Path) -> Self {
        Self { variable: "PETSTORE_DATA_DIR", value: data_dir.into(), by: Vec::new() }
    }

    pub fn url(url: impl Into<OsString>) -> Self {
        Self { variable: "PETSTORE_DATABASE_URL", value: url.into(), by: Vec::new() }
    }

    /// The same for whoever begins with this command.
    pub fn seen_by(self, by: &Command) -> Self {
        let by = [by.get_program()].into_iter().chain(by.get_args()).map(OsString::from).collect();
        Self { by, ..self }
    }

    pub fn petstore(&self, command: &str) -> Command {
        let Some((program, arguments)) = self.by.split_first() else {
            return self.with(Command::new(PETSTORE), command);
        };
        let mut by = Command::new(program);
        by.args(arguments);
        self.petstore_by(by, command)
    }

    /// The same, begun by another program, which takes what it begins as its last arguments.
    pub fn petstore_by(&self, mut by: Command, command: &str) -> Command {
        by.arg(PETSTORE);
        self.with(by, command)
    }

    fn with(&self, mut program: Command, command: &str) -> Command {
        program.args(command.split(' ')).env(self.variable, &self.value);
        // The program would warn about these variables of the tests.
        program.env_remove("PETSTORE_ROUNDS").env_remove("PETSTORE_SEED");
        program
    }

    /// A new account's key, made by the command line.
    pub fn make_key(&self) -> String {
        self.key_of("ada@example.com")
    }

    /// A key of a new account with this address.
    pub fn key_of(&self, email: &str) -> String {
        let made = self.petstore(&format!("account create {email}")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.another_key_of(email)
    }

    pub fn another_key(&self) -> String {
        self.another_key_of("ada@example.com")
    }

    fn another_key_of(&self, email: &str) -> String {
        let made = self.petstore(&format!("key create --account {email} --name test")).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }
}

pub struct Process {
    child: Child,
    pub store: String,
    pub messages: String,
}

impl Process {
    /// Starts `petstore serve` on free ports and waits until it listens.
    pub fn serve(database: &Database) -> Self {
        Self::serve_with(database, "")
    }

    /// The same with more flags.
    pub fn serve_with(database: &Database, flags: &str) -> Self {
        let mut command = database.petstore(SERVE);
        command.args(flags.split_whitespace());
        Self::start(command)
    }

    /// The same, begun by another program, in whose place it then is.
    pub fn serve_by(by: Command, database: &Database) -> Self {
        Self::start(database.petstore_by(by, SERVE))
    }

    /// The same, whatever it is that serves.
    pub fn start(command: Command) -> Self {
        Self::try_start(command).expect("the service says where it listens")
    }

    /// The same; nothing where it ends before it listens.
    pub fn try_start(mut command: Command) -> Option<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = log.by_ref().map(Result::unwrap).inspect(|line| eprintln!("{line}"));
        let Some(listening) = lines.find(|line| line.contains("\"listening\"")) else {
            child.wait().unwrap();
            return None;
        };
        // The rest of the log is read away, so that the service never waits for a reader; a failing test shows it.
        std::thread::spawn(move || log.for_each(|line| eprintln!("{}", line.unwrap_or_default())));
        let listening: serde_json::Value = serde_json::from_str(&listening).unwrap();
        // A door that is not open has none.
        let address = |door: &str| listening[door].as_str().unwrap_or_default().to_owned();
        Some(Self { store: address("store"), messages: address("messages"), child })
    }

    pub fn get(&self, path: &str, key: &str) -> Answer {
        Answer::to(&self.store, "GET", path, key, "", "")
    }

    pub fn create_pet(&self, key: &str, name: &str) -> Answer {
        Answer::to(&self.store, "POST", "/v1/pets", key, "", &new_pet(name))
    }

    pub fn send_message(&self, key: &str, text: &str) -> Answer {
        Answer::to(&self.messages, "POST", "/v1/messages", key, "", &new_message(text))
    }

    /// How many sockets the process has open.
    pub fn sockets(&self) -> usize {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let targets = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time so far, in user and system mode together.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // Linux counts these in hundredths of a second on every machine there is.
        Duration::from_millis(ticks * 10)
    }

    /// The memory that it holds, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Its standard input, where that is ours to write to.
    pub fn input(&mut self) -> &mut impl Write {
        self.child.stdin.as_mut().expect("its standard input is a pipe")
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.ended(PATIENCE)
    }

    /// Waits for an end that must come by itself.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        let mut ended = None;
        within(limit, "ending", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Suspends all threads, so that none of them runs when this returns. [`Signal::CONT`] continues them.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let is_stopped = |thread: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        within(PATIENCE, "stopping", || fs::read_dir(&threads).unwrap().all(is_stopped));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A GET without a key; nothing where nobody answers.
pub fn try_get(address: &str, path: &str) -> Option<Answer> {
    Answer::try_to(address, "GET", path, "", "", "").ok()
}

/// Creates an animal at the listener at `address`. `None` if there is no response.
pub fn try_create_pet(address: &str, key: &str, name: &str) -> Option<Answer> {
    Answer::try_to(address, "POST", "/v1/pets", key, "", &new_pet(name)).ok()
}

/// Sends a POST to the listener at `address`.
pub fn post(address: &str, path: &str, key: &str, body: &str) -> Answer {
    Answer::to(address, "POST", path, key, "", body)
}

/// A POST to the door at `address` with an `Idempotency-Key`.
pub fn post_once(address: &str, path: &str, key: &str, once: &str, body: &str) -> Answer {
    Answer::to(address, "POST", path, key, &format!("Idempotency-Key: {once}\r\n"), body)
}

/// A message to the door at `address`; nothing where nobody answers.
pub fn try_send_message(address: &str, key: &str, text: &str) -> Option<Answer> {
    Answer::try_to(address, "POST", "/v1/messages", key, "", &new_message(text)).ok()
}

/// An answer, and how long it took.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    pub took: Duration,
}

impl Answer {
    fn to(address: &str, method: &str, path: &str, key: &str, header: &str, body: &str) -> Self {
        Self::try_to(address, method, path, key, header, body).unwrap()
    }

    fn try_to(address: &str, method: &str, path: &str, key: &str, header: &str, body: &str) -> std::io::Result<Self> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
        );
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no answer: {text}")))?;
        Ok(Self { status, text, took: began.elapsed() })
    }

    /// Fails unless this is how an answer must be while the database is not there.
    pub fn assert_unavailable(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        assert!(self.text.contains("\r\nretry-after: "), "{self:?}");
        // Beside other tests, on a busy machine, times tell nothing.
        assert!(self.took <= Duration::from_secs(if is_full() { 2 } else { 10 }), "{self:?}");
    }

    /// Whether the same request may be answered otherwise later: not where something else has what was asked for, which is
    /// the 409 without a time.
    pub fn says_to_ask_again(&self) -> bool {
        let again = self.text.contains("\r\nretry-after: ");
        assert!(again || self.status != 503, "{self:?}");
        again && matches!(self.status, 409 | 503)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.body()).unwrap()
    }

    pub fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().1
    }

    pub fn is_replayed(&self) -> bool {
        self.text.contains("\r\nidempotent-replayed: true\r\n")
    }
}

pub fn new_pet(name: &str) -> String {
    format!(r#"{{"name":"{name}","categoryId":1}}"#)
}

pub fn new_message(text: &str) -> String {
    format!(r#"{{"message":"{text}"}}"#)
}

/// Waits until `done`, at most `limit`; says how long it took.
pub fn within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what} took longer than {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}
