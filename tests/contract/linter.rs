//! Two linters, at their strictest: a warning is a failure.

use std::process::Command;

use crate::process::{run, shown, tool};
use crate::{golden, support};

#[test]
fn redocly_has_nothing_to_say() {
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
fn spectral_has_nothing_to_say() {
    for (name, document) in documents() {
        let folder = folder_with(&document);
        std::fs::write(folder.path().join("rules.json"), r#"{"extends":["spectral:oas"]}"#).unwrap();
        let mut spectral = node("spectral");
        spectral.args(["lint", "--ruleset", "rules.json", "--fail-severity", "hint", "openapi.json"]);
        let output = run(&mut spectral, folder.path());
        assert!(output.status.success(), "{name}:\n{}", shown(&output));
    }
}

fn documents() -> [(&'static str, String); 3] {
    [
        ("production", golden::production(support::NOW)),
        ("after the removal", golden::after_removal()),
        ("staging", golden::staging()),
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
