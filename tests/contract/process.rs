//! Real processes: the service as it is shipped, and the tools that `scripts/test` installs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The service, on free ports, with its own folder, 30 animals and a key. Ends with this value.
pub struct Petstore {
    process: Child,
    pub store: String,
    pub messages: String,
    pub key: String,
    _folder: tempfile::TempDir,
}

impl Petstore {
    pub fn start() -> Self {
        Self::start_on(None)
    }

    /// On the PostgreSQL database at `url` where there is one, else on the embedded database.
    pub fn start_on(url: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_petstore"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PETSTORE_") {
                command.env_remove(name);
            }
        }
        let data = folder.path().join("data");
        command.arg("quickstart").arg("--data-dir").arg(&data);
        command.args(url.map(|url| format!("--database-url={url}")));
        for door in ["--listen", "--messages-listen", "--ops-listen"] {
            command.args([door, "127.0.0.1:0"]);
        }
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listening = log.by_ref().find_map(|line| {
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            (line["message"] == "listening").then_some(line)
        });
        // Whatever the log still says belongs to a failing test's output; and a full pipe would stop the service.
        std::thread::spawn(move || log.for_each(|line| eprintln!("{line}")));
        let listening = listening.expect("the service says where it listens");
        let door = |name: &str| format!("http://{}", listening[name].as_str().unwrap());
        let key = std::fs::read_to_string(data.join("quickstart.key")).unwrap().trim().to_owned();
        Self { process, store: door("store"), messages: door("messages"), key, _folder: folder }
    }
}

impl Drop for Petstore {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A tool in `target/tools`.
pub fn tool(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(path);
    assert!(path.exists(), "{} is missing: run scripts/test, which installs it", path.display());
    path
}

/// Runs a tool in a folder that is its home too, so that neither its settings nor its traces are the user's.
pub fn run(command: &mut Command, folder: &Path) -> Output {
    let output = command.current_dir(folder).env("HOME", folder).env("NO_PROXY", "127.0.0.1").output();
    output.unwrap_or_else(|error| panic!("{error}: run scripts/test, which installs {:?}", command.get_program()))
}

/// Both streams of a tool, for a person to read.
pub fn shown(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
