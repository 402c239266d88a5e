//! Real processes: the service as it is shipped, and the tools that `scripts/test` installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Folder, Server};

/// The service on free ports, with its own folder, 30 animals and a key. Stopped on drop. As in a container, the store
/// listens on every address, so that `Location` and `Link` are relative.
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
        let listen = "--listen=0.0.0.0:0 --messages-listen=127.0.0.1:0 --ops-listen=127.0.0.1:0";
        let server = Server::start(&mut folder.command(&format!("quickstart --data-dir data {url} {listen}")));
        let listener = |name: &str| format!("http://127.0.0.1:{}", server.address(name).port());
        let key = folder.read("data/quickstart.key").trim().to_owned();
        Self { store: listener("store"), messages: listener("messages"), key, _server: server, _folder: folder }
    }

    /// Replaces the default addresses in a text by those of the service.
    pub fn at_its_addresses(&self, text: &str) -> String {
        text.replace("http://127.0.0.1:8080", &self.store).replace("http://127.0.0.1:8081", &self.messages)
    }

    /// Adds the service's addresses and a key to the environment of a client.
    pub fn environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("STORE_URL", format!("{}/v1", self.store))
            .env("MESSAGES_URL", format!("{}/v1", self.messages))
            .env("STORE_API_KEY", &self.key)
    }
}

/// A tool in `target/tools`.
pub fn tool(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(path);
    assert!(path.exists(), "{} is missing: run scripts/test, which installs it", path.display());
    path
}

/// Runs a tool in a folder that is also its home, so that it does not touch the user's files.
pub fn run(command: &mut Command, folder: &Path) -> Output {
    let output = command.current_dir(folder).env("HOME", folder).env("NO_PROXY", "127.0.0.1").output();
    output.unwrap_or_else(|error| panic!("{error}: run scripts/test, which installs {:?}", command.get_program()))
}

/// A command of the shell that finds the tools in `target/tools` before others.
pub fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    let path = std::env::var("PATH").unwrap();
    let (python, npm) = (tool("python/bin"), tool("npm/node_modules/.bin"));
    shell.args(["-euc", command]).env("PATH", format!("{}:{}:{path}", python.display(), npm.display()));
    // openapi-generator runs for too short a time to profit from Java's optimising compiler.
    shell.env("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
    shell
}

/// A command of Go without external modules, other toolchains and C. The cache has the compiled standard library.
pub fn go(command: &str) -> String {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/go-cache");
    // Without inlining, the first build of the standard library takes a fifth less.
    let flags = "GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-gcflags=all=-l CGO_ENABLED=0";
    format!("{flags} GOCACHE='{}' go {command}", cache.display())
}

/// Both streams of a tool, for a person to read.
pub fn shown(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
