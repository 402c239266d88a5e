//! The built program, as a process that may be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Process {
    child: Child,
    pub store: String,
    pub messages: String,
}

impl Process {
    /// Starts `petstore serve` on free ports and waits until it listens.
    pub fn serve(data_dir: &Path) -> Self {
        let mut child = petstore(data_dir, "serve")
            .args(["--listen", "127.0.0.1:0", "--messages-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = log
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains("\"listening\""))
            .expect("the service says where it listens");
        // The rest of the log is read away, so that the service never waits for a reader.
        std::thread::spawn(move || log.for_each(drop));
        let listening: serde_json::Value = serde_json::from_str(&listening).unwrap();
        let address = |door: &str| listening[door].as_str().unwrap().to_owned();
        Self { store: address("store"), messages: address("messages"), child }
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

/// A new account's key, made by the command line.
pub fn make_key(data_dir: &Path) -> String {
    let status = petstore(data_dir, "account").args(["create", "ada@example.com"]).output().unwrap().status;
    assert!(status.success());
    let made = petstore(data_dir, "key").args(["create", "--account", "ada@example.com", "--name", "test"]).output();
    String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned()
}

fn petstore(data_dir: &Path, command: &str) -> Command {
    let mut petstore = Command::new(env!("CARGO_BIN_EXE_petstore"));
    petstore.arg(command).env("PETSTORE_DATA_DIR", data_dir);
    petstore
}
