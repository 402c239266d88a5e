//! The Postman collection that is generated from the document.

use serde_json::Value;

use crate::guide::section;
use crate::process::{Petstore, run, shell, shown, tool};

#[test]
fn postman_collection_works() {
    let service = Petstore::start();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path().join("node_modules")).unwrap();
    let commands = service.at_its_addresses(&section("Postman and Bruno").commands);
    let mut shell = shell(&format!("{} --reporters json --reporter-json-export report.json", commands.trim_end()));
    let output = run(service.environment(&mut shell), folder.path());
    assert!(output.status.success(), "{}", shown(&output));

    let report = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let executions = report["run"]["executions"].as_array().unwrap();
    let results: Vec<_> = executions
        .iter()
        .map(|execution| format!("{} {}", execution["response"]["code"], execution["item"]["name"].as_str().unwrap()))
        .collect();
    let expected = [
        "200 List animals",
        "201 Add an animal",
        "200 Get an animal (deprecated, removed on 5 December 2030)",
        "200 List orders",
        "201 Place an order",
        "200 Get an order",
        "200 Approve an order",
        "200 Deliver an order",
        // It was delivered.
        "409 Cancel an order",
        "202 Send a message",
        "200 List messages",
    ];
    assert_eq!(results, expected);
}
