//! The built program, as a process that may be killed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any answer may take: beyond it, a process hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the data lies, as a variable of the environment says it.
#[derive(Clone)]
pub struct Database(&'static str, OsString);

impl Database {
    pub fn folder(data_dir: &Path) -> Self {
        Self("PETSTORE_DATA_DIR", data_dir.into())
    }

    pub fn url(url: impl Into<OsString>) -> Self {
        Self("PETSTORE_DATABASE_URL", url.into())
    }

    pub fn petstore(&self, command: &str) -> Command {
        let mut petstore = Command::new(env!("CARGO_BIN_EXE_petstore"));
        petstore.args(command.split(' ')).env(self.0, &self.1);
        petstore
    }

    /// A new account's key, made by the command line.
    pub fn make_key(&self) -> String {
        self.another_account("ada@example.com")
    }

    /// A key of another account.
    pub fn another_account(&self, email: &str) -> String {
        let made = self.petstore(&format!("account create {email}")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.key_of(email)
    }

    pub fn another_key(&self) -> String {
        self.key_of("ada@example.com")
    }

    fn key_of(&self, email: &str) -> String {
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
        let mut child = database
            .petstore("serve --listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = log
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains("\"listening\""))
            .expect("the service says where it listens");
        // The rest of the log is read away, so that the service never waits for a reader; a failing test shows it.
        std::thread::spawn(move || log.for_each(|line| eprintln!("{}", line.unwrap_or_default())));
        let listening: serde_json::Value = serde_json::from_str(&listening).unwrap();
        let address = |door: &str| listening[door].as_str().unwrap().to_owned();
        Self { store: address("store"), messages: address("messages"), child }
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

    /// The same two with an `Idempotency-Key`.
    pub fn create_pet_once(&self, key: &str, once: &str, name: &str) -> Answer {
        let once = format!("Idempotency-Key: {once}\r\n");
        Answer::to(&self.store, "POST", "/v1/pets", key, &once, &new_pet(name))
    }

    pub fn send_message_once(&self, key: &str, once: &str, text: &str) -> Answer {
        let once = format!("Idempotency-Key: {once}\r\n");
        Answer::to(&self.messages, "POST", "/v1/messages", key, &once, &new_message(text))
    }

    /// How many sockets the process has open.
    pub fn sockets(&self) -> usize {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let targets = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
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

/// An answer, and how long it took.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    pub took: Duration,
}

impl Answer {
    fn to(address: &str, method: &str, path: &str, key: &str, header: &str, body: &str) -> Self {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, text, took: began.elapsed() }
    }

    /// Fails unless this is how an answer must be while the database is not there.
    pub fn assert_unavailable(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        assert!(self.text.contains("\r\nretry-after: "), "{self:?}");
        assert!(self.took <= Duration::from_secs(2), "{self:?}");
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
