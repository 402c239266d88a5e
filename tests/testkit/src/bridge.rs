//! The bridge to NATS JetStream, exactly as docs/relay.md shows it.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::database::succeed;
use crate::nats::NatsServer;
use crate::postgres::free_port;
use crate::process::{Killed, root};

/// Prints the messages of the stream, a line of JSON each.
const READ: &str = r#"
import asyncio, json, sys
import nats
from nats.errors import TimeoutError

async def main():
    jetstream = (await nats.connect(sys.argv[1])).jetstream()
    count = (await jetstream.stream_info("PETSTORE_MESSAGES")).state.messages
    messages = await jetstream.subscribe("petstore.messages", ordered_consumer=True)
    for _ in range(count):
        message = await messages.next_msg(timeout=60)
        print(json.dumps([*map(message.headers.get, ("Nats-Msg-Id", "Petstore-Account")), message.data.decode()]))

asyncio.run(main())
"#;

/// A bridge and its broker. Killed on drop.
pub struct Bridge {
    pub nats: NatsServer,
    folder: TempDir,
    port: u16,
    running: Option<Killed>,
}

/// A message as the stream stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: String,
    pub account: String,
    pub body: String,
}

impl Bridge {
    /// Starts both. The bridge verifies signatures with `secret`.
    pub fn start(secret: &str) -> Self {
        let (nats, folder, port) = (NatsServer::start(), tempfile::tempdir().unwrap(), free_port());
        let page = fs::read_to_string(root().join("docs/relay.md")).unwrap();
        let mut programs = page.split("```python\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
        let program = programs.find(|program| program.contains("import nats")).expect("the page has the bridge");
        let program = program.replace("4222", &nats.port().to_string()).replace("8000", &port.to_string());
        fs::write(folder.path().join("bridge.py"), program).unwrap();
        fs::write(folder.path().join("relay-secrets"), secret).unwrap();
        let mut bridge = Self { nats, folder, port, running: None };
        bridge.start_again();
        bridge
    }

    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the bridge is running");
        self.running = Some(Killed::listening(&[&python(), "bridge.py"], self.folder.path(), self.port));
    }

    /// `kill -9` of the bridge. The broker runs on.
    pub fn kill(&mut self) {
        assert!(self.running.take().is_some(), "the bridge is running");
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The messages of the stream in order.
    pub fn stored(&self) -> Vec<Stored> {
        let lines = succeed(Command::new(python()).args(["-c", READ, &self.nats.url()]));
        let stored = |line: &str| {
            let (id, account, body) = serde_json::from_str(line).unwrap();
            Stored { id, account, body }
        };
        lines.lines().map(stored).collect()
    }
}

/// Python with the libraries that the page needs.
fn python() -> String {
    let path = root().join("target/tools/python/bin/python");
    assert!(path.exists(), "{} is missing: run scripts/test, which installs it", path.display());
    path.into_os_string().into_string().unwrap()
}
