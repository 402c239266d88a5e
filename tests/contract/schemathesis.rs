//! Promise 23. Schemathesis generates valid and invalid requests from the document and runs all of its checks on the
//! responses.

use std::process::{Command, Output};

use petstore::api::{Listener, Operation};
use serde_json::Value;
use testkit::trial::{self, is_full, rounds};
use testkit::{PostgresServer, Random, Request};

use crate::guide::section;
use crate::process::{Petstore, run, shell, shown, tool};

/// The suite sends the same requests each time, so that a change does not fail because of another change.
const SEED: u64 = 20_301_208;

/// On a slow machine, the service may take a minute to respond, and Schemathesis any time to generate a request.
const PATIENT: &str = "--request-timeout 60 --max-response-time 60 --suppress-health-check too_slow";

/// Number of examples of each operation, unless the run is full. With 5, Schemathesis warns that it found too little data.
const EXAMPLES: u32 = 20;

/// Number of seeds for the full figure.
const SEEDS: usize = 3;

// Schemathesis sends every operation to one address, so each listener has its own run.

const STORE: [&str; 4] = ["--include-tag", "pets", "--include-tag", "store"];

/// Messages have no links, so the stateful phase has nothing to follow.
const MESSAGES: [&str; 4] = ["--include-tag", "messages", "--phases", "examples,coverage,fuzzing"];

#[test]
fn service_conforms_to_the_document() {
    check_conformance(&Petstore::start(), "SQLite");
}

#[test]
fn service_conforms_to_the_document_on_postgresql() {
    check_conformance(&Petstore::start_on(Some(PostgresServer::shared().database())), "PostgreSQL");
}

#[test]
fn wrong_document_is_detected() {
    let service = Petstore::start();
    let folder = tempfile::tempdir().unwrap();
    let printed = Command::new(testkit::petstore()).arg("openapi").output().unwrap();
    let mut document: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let kind = document.pointer_mut("/components/schemas/Pet/properties/id/type").expect("a pet has an id");
    *kind = "string".into();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let output = schemathesis(&service.key, file.to_str().unwrap(), &service.store, &STORE, SEED, 1);
    let report = shown(&output);
    assert!(!output.status.success() && report.contains("Response violates schema"), "{report}");
}

#[test]
fn documented_commands_find_no_failure() {
    let service = Petstore::start();
    let folder = tempfile::tempdir().unwrap();
    let commands = section("Schemathesis").commands;
    let few = format!("--seed 1 --max-examples {EXAMPLES} {PATIENT}");
    let seeded = format!("schemathesis --no-color run --generation-database none {few}");
    let seeded = commands.replace("schemathesis run", &seeded);
    let mut shell = shell(&service.at_its_addresses(&seeded));
    let output = run(service.environment(&mut shell), folder.path());
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(shown(&output).matches("No issues found").count(), 2, "{}", shown(&output));
}

fn check_conformance(service: &Petstore, database: &str) {
    let (examples, mut cases) = (rounds(EXAMPLES), 0);
    let seeds = if is_full() { new_seeds() } else { vec![SEED] };
    for seed in &seeds {
        cases += check(service, &service.store, &STORE, Listener::Store, *seed, examples);
        cases += check(service, &service.messages, &MESSAGES, Listener::Messages, *seed, examples);
    }
    an_order_was_delivered(service);
    let seeds = seeds.len();
    trial::measured(&format!("{database}: {seeds} x {examples} examples of each operation, {cases} cases, 0 failures"));
}

fn new_seeds() -> Vec<u64> {
    let mut random = Random::from_seed();
    (0..SEEDS).map(|_| random.below(1_000_000_000)).collect()
}

/// Returns the number of test cases.
fn check(service: &Petstore, address: &str, filter: &[&str], listener: Listener, seed: u64, examples: u32) -> u64 {
    println!("seed {seed}, {examples} examples for each operation");
    let document = format!("{}/openapi.json", service.store);
    let output = schemathesis(&service.key, &document, address, filter, seed, examples);
    let report = shown(&output);
    assert!(output.status.success(), "{report}");
    let selected = Operation::documented().filter(|operation| operation.is_on(listener)).count();
    let selected = format!("{selected} selected / {} total", Operation::documented().count());
    assert!(report.contains(&selected), "other operations were tested, not {selected}:\n{report}");
    assert!(report.contains("No issues found"), "{report}");
    let (_, cases) = report.split_once("Test cases:").expect("Schemathesis reports the number of cases");
    cases.split_whitespace().find_map(|word| word.replace(',', "").parse().ok()).expect("a number of cases")
}

fn schemathesis(key: &str, document: &str, address: &str, operations: &[&str], seed: u64, examples: u32) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut schemathesis = Command::new(tool("python/bin/schemathesis"));
    schemathesis
        .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract/tools/schemathesis.toml")])
        .args(["run", document])
        .args(["--url", &format!("{address}/v1")])
        .args(["--header", &format!("Authorization: Bearer {key}")])
        .args(["--checks", "all", "--continue-on-failure", "--no-color"])
        .args(PATIENT.split(' '))
        .args(["--seed", &seed.to_string(), "--max-examples", &examples.to_string(), "--generation-database", "none"])
        .args(operations);
    run(&mut schemathesis, folder.path())
}

/// Checks that Schemathesis followed the links from placing an order to its approval and delivery.
fn an_order_was_delivered(service: &Petstore) {
    let store = service.store.strip_prefix("http://").unwrap().parse().unwrap();
    let delivered = Request::new(store, "GET", "/v1/store/orders?status=delivered").key(&service.key).send_blocking();
    let reason =
        "with this seed, Schemathesis delivers no order: choose another SEED, as after changes of the document";
    assert!(!delivered.ids().is_empty(), "{reason}");
}
