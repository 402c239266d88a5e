//! Messages to an endpoint, as the libraries of Standard Webhooks, and the receivers and the bridge of the documentation read them.

use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use testkit::postgres::free_port;
use testkit::{Bridge, Endpoint, Folder, Process, Request, Server, TIMEOUT, within};

use crate::process::{run, shell, shown, tool};

const SECRETS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_3cEaQAtTBPmMpZQtBgQKjzJ4Xh1FmEKvnUhEeDl0/w4="];

/// Prints the id in `delivery.json` for each secret, and whether the library rejects another body.
const JAVASCRIPT: &str = r#"
import { readFileSync } from "node:fs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
const delivery = JSON.parse(readFileSync("delivery.json", "utf8"));
for (const secret of delivery.secrets) {
  console.log(new Webhook(secret).verify(delivery.body, delivery.headers).data.id);
  try {
    new Webhook(secret).verify(delivery.body + " ", delivery.headers);
  } catch (error) {
    if (error instanceof WebhookVerificationError) console.log("rejected");
  }
}
"#;

/// Starts a service that delivers to `url`, and sends a message. Returns its id.
fn deliver(folder: &Folder, url: &str) -> (Server, String) {
    let server = folder.serve(&format!("quickstart --relay {url} --relay-secret-file relay-secrets"));
    let key = folder.read("petstore-data/quickstart.key");
    let sent = server.send_message(key.trim(), "ß🦊").json();
    (server, sent["id"].as_str().unwrap().to_owned())
}

/// The documented receivers and the bridge use the library for Python.
#[test]
fn javascript_library_of_standard_webhooks_verifies_messages() {
    let (folder, endpoint) = (Folder::new(), Endpoint::acknowledging());
    folder.write("relay-secrets", SECRETS.join("\n"));
    let (_server, id) = deliver(&folder, &endpoint.url());
    let delivery = endpoint.arrived(1).remove(0);
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| (name, delivery.header(name)));
    let headers: Value = headers.into_iter().collect();
    let delivery = json!({"secrets": SECRETS, "headers": headers, "body": delivery.body});
    folder.write("delivery.json", delivery.to_string());
    folder.write("verify.mjs", JAVASCRIPT);
    std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path("node_modules")).unwrap();

    let output = run(&mut shell("node verify.mjs"), &folder.path(""));

    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id}\nrejected\n").repeat(2));
}

#[test]
fn documented_receivers_print_the_message() {
    for page in ["docs/tutorial.md", "docs/relay.md"] {
        let folder = Folder::new();
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        let program = text.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
        let secret = text.lines().find(|line| line.contains("> relay-secrets")).unwrap();
        assert!(folder.program("sh").args(["-c", secret]).status().unwrap().success());
        let port = free_port();
        folder.write("receiver.py", program.replace("8000", &port.to_string()));
        let mut receiver = shell("exec python receiver.py");
        let mut receiver = Process::start(receiver.current_dir(folder.path("")));
        within(TIMEOUT, "the start of the receiver", || TcpStream::connect(("127.0.0.1", port)).is_ok());

        let (_server, id) = deliver(&folder, &format!("http://127.0.0.1:{port}/"));

        within(TIMEOUT, "marking the message as sent", || {
            folder.succeed("messages list --json").contains(r#""status": "sent""#)
        });
        receiver.kill();
        let printed = receiver.end().stdout;
        assert!(printed.contains(&id) && printed.contains("ß🦊"), "{page}: {printed}");
    }
}

/// The promises in `verification/tests/promises/outbox.rs` send messages through the bridge.
#[test]
fn documented_bridge_rejects_other_signatures() {
    let bridge = Bridge::start(SECRETS[0]);
    let address = bridge.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let forged = Request::new(address, "POST", "/").header("webhook-id", "msg_1").header("webhook-timestamp", "1");
    let forged = forged.header("webhook-signature", "v1,AAAA").json(r#"{"type":"message.created"}"#);
    assert_eq!(forged.send_blocking().status(), 401);
    assert!(bridge.stored().is_empty());
}
