//! Linters and validators of the document, at their strictest: a warning is a failure.

use std::process::Command;

use crate::document;
use crate::process::{run, shell, shown, tool};

#[test]
fn redocly_reports_no_problem() {
    for (name, document) in documents() {
        let folder = folder_with(&document);
        let mut redocly = node("redocly");
        redocly.args(["lint", "--extends", "recommended-strict", "openapi.json"]);
        redocly.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
        let output = run(&mut redocly, folder.path());
        assert!(output.status.success(), "{name}:\n{}", shown(&output));
        assert!(!shown(&output).contains("arning"), "{name}:\n{}", shown(&output));
    }
}

#[test]
fn spectral_reports_no_problem() {
    let rules = include_str!("tools/spectral.yaml");
    for (name, document) in documents() {
        let folder = folder_with(&document);
        std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
        // Spectral looks for the rules of OWASP here.
        std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path().join("node_modules")).unwrap();
        let mut spectral = node("spectral");
        spectral.args(["lint", "--ruleset", "rules.yaml", "--fail-severity", "hint", "openapi.json"]);
        let output = run(&mut spectral, folder.path());
        assert!(output.status.success(), "{name}:\n{}", shown(&output));
    }
}

#[test]
fn document_matches_the_specification() {
    for (name, document) in documents() {
        let folder = folder_with(&document);
        let output = run(&mut shell("openapi-spec-validator openapi.json"), folder.path());
        assert!(output.status.success(), "{name}:\n{}", shown(&output));
    }
}

#[test]
fn openapi_generator_reports_no_problem() {
    for (name, document) in documents() {
        let folder = folder_with(&document);
        let output = run(&mut shell("openapi-generator-cli validate --recommend -i openapi.json"), folder.path());
        assert!(shown(&output).contains("No validation issues detected"), "{name}:\n{}", shown(&output));
    }
}

fn documents() -> [(&'static str, String); 4] {
    [
        ("production", document::production()),
        ("after the removal", document::after_removal()),
        ("staging", document::staging()),
        ("OpenAPI 3.0", document::production_3_0()),
    ]
}

fn folder_with(document: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("openapi.json"), document).unwrap();
    folder
}

fn node(package: &str) -> Command {
    let mut command = Command::new(tool("python/bin/node"));
    command.arg(tool(&format!("npm/node_modules/.bin/{package}")));
    command
}
