//! Schemathesis: requests made up from the document, valid and invalid, and all of its checks on the answers.
//!
//! `PETSTORE_TEST_SEED` and `PETSTORE_TEST_EXAMPLES` (per operation) make it look elsewhere, or longer.

use std::env::var;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::postgres_server::Server;
use crate::process::{Petstore, run, shown, tool};

// Schemathesis sends every operation to one address, so each door has its own run.

/// Nothing leads from a message anywhere, so there are no walks to go on.
const MESSAGES: [&str; 4] = ["--include-tag", "messages", "--phases", "examples,coverage,fuzzing"];

#[test]
fn the_store_door_keeps_to_the_document() {
    let service = Petstore::start();
    check(&service, &service.store, &["--include-tag", "pets", "--include-tag", "store"], "8 selected / 9 total");
    an_order_was_delivered(&service);
}

#[test]
fn the_messages_door_keeps_to_the_document() {
    let service = Petstore::start();
    check(&service, &service.messages, &MESSAGES, "1 selected / 9 total");
}

#[test]
fn the_doors_keep_to_the_document_on_postgresql_too() {
    let service = Petstore::start_on(Some(Server::shared().database()));
    check(&service, &service.store, &["--include-tag", "pets", "--include-tag", "store"], "8 selected / 9 total");
    an_order_was_delivered(&service);
    check(&service, &service.messages, &MESSAGES, "1 selected / 9 total");
}

fn check(service: &Petstore, door: &str, operations: &[&str], selected: &str) {
    let seed = var("PETSTORE_TEST_SEED").unwrap_or_else(|_| "20301205".into());
    let examples = var("PETSTORE_TEST_EXAMPLES").unwrap_or_else(|_| "60".into());
    println!("seed {seed}, {examples} examples for each operation");
    let folder = tempfile::tempdir().unwrap();
    let mut schemathesis = Command::new(tool("python/bin/schemathesis"));
    schemathesis
        .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/tools/schemathesis.toml")])
        .arg("run")
        .arg(format!("{}/openapi.json", service.store))
        .args(["--url", &format!("{door}/v1")])
        .args(["--header", &format!("Authorization: Bearer {}", service.key)])
        .args(["--checks", "all", "--continue-on-failure", "--no-color"])
        .args(["--seed", &seed, "--max-examples", &examples, "--generation-database", "none"])
        .args(operations);
    let output = run(&mut schemathesis, folder.path());
    let report = shown(&output);
    assert!(output.status.success(), "{report}");
    assert!(report.contains(selected), "other operations than these were tried:\n{report}");
    assert!(report.contains("No issues found"), "{report}");
}

/// Links lead from placing an order to its approval, and from there to its delivery: they were followed.
fn an_order_was_delivered(service: &Petstore) {
    let mut stream = TcpStream::connect(service.store.strip_prefix("http://").unwrap()).unwrap();
    let head = format!("Host: x\r\nAuthorization: Bearer {}\r\nConnection: close", service.key);
    write!(stream, "GET /v1/store/orders?status=delivered HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""status":"delivered""#), "{answer}");
}
