//! Real processes: the service as it is shipped, and the tools that `scripts/test` installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Folder, Server};

/// The service on free ports, with its own folder, 30 animals and a key. Stopped on drop.
pub struct Petstore {
    pub store: String,
    pub messages: String,
    pub key: String,
    _server: Server,
    _folder: Folder,
}

impl Petstore {
    pub fn start() -> Self {
        Self::start_on(None)
    }

    /// On the PostgreSQL database at `url`, if any, instead of the embedded database.
    pub fn start_on(url: Option<String>) -> Self {
        let folder = Folder::new();
        let url = url.map(|url| format!("--database-url={url}")).unwrap_or_default();
        let server = folder.serve(&format!("quickstart --data-dir data {url}"));
        let listener = |name: &str| format!("http://{}", server.address(name));
        let key = folder.read("data/quickstart.key").trim().to_owned();
        Self { store: listener("store"), messages: listener("messages"), key, _server: server, _folder: folder }
    }
}

/// A tool in `target/tools`.
pub fn tool(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(path);
    assert!(path.exists(), "{} is missing: run scripts/test, which installs it", path.display());
    path
}

/// Runs a tool in a folder that is its home too, so that it neither reads nor writes the user's files.
pub fn run(command: &mut Command, folder: &Path) -> Output {
    let output = command.current_dir(folder).env("HOME", folder).env("NO_PROXY", "127.0.0.1").output();
    output.unwrap_or_else(|error| panic!("{error}: run scripts/test, which installs {:?}", command.get_program()))
}

/// Both streams of a tool, for a person to read.
pub fn shown(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
