//! Linters and validators of the document, at their strictest: a warning is a failure.

use std::process::Command;

use crate::document;
use crate::process::{run, shell, shown, tool};

#[test]
fn redocly_reports_no_problem() {
    let (folder, files) = folder_with_documents();
    let mut redocly = node("redocly");
    redocly.args(["lint", "--extends", "recommended-strict"]).args(files);
    redocly.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    let output = run(&mut redocly, folder.path());
    assert!(output.status.success(), "{}", shown(&output));
    assert!(!shown(&output).contains("arning"), "{}", shown(&output));
    for file in files {
        assert!(shown(&output).contains(&format!("{file}: validated")), "{}", shown(&output));
    }
}

#[test]
fn spectral_reports_no_problem() {
    let (folder, files) = folder_with_documents();
    std::fs::write(folder.path().join("rules.yaml"), include_str!("tools/spectral.yaml")).unwrap();
    // Spectral looks for the rules of OWASP here.
    std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path().join("node_modules")).unwrap();
    let mut spectral = node("spectral");
    spectral.args(["lint", "--ruleset", "rules.yaml", "--fail-severity", "hint"]).args(files);
    let output = run(&mut spectral, folder.path());
    assert!(output.status.success(), "{}", shown(&output));
}

#[test]
fn document_matches_the_specification() {
    let (folder, files) = folder_with_documents();
    let output = run(&mut shell(&format!("openapi-spec-validator {}", files.join(" "))), folder.path());
    assert!(output.status.success(), "{}", shown(&output));
    for file in files {
        assert!(shown(&output).contains(&format!("{file}: OK")), "{}", shown(&output));
    }
}

#[test]
fn openapi_generator_reports_no_problem() {
    let (folder, files) = folder_with_documents();
    for file in files {
        let mut validate = shell(&format!("openapi-generator-cli validate --recommend -i {file}"));
        let output = run(&mut validate, folder.path());
        assert!(shown(&output).contains("No validation issues detected"), "{file}:\n{}", shown(&output));
    }
}

/// Writes each kind of document to a file. A tool takes more time to start than to check a document, so it gets all of them.
fn folder_with_documents() -> (tempfile::TempDir, [&'static str; 4]) {
    let folder = tempfile::tempdir().unwrap();
    let documents = [
        ("production.json", document::production()),
        ("after-the-removal.json", document::after_removal()),
        ("staging.json", document::staging()),
        ("openapi-3.0.json", document::production_3_0()),
    ];
    let files = documents.map(|(file, document)| {
        std::fs::write(folder.path().join(file), document).unwrap();
        file
    });
    (folder, files)
}

fn node(package: &str) -> Command {
    let mut command = Command::new(tool("python/bin/node"));
    command.arg(tool(&format!("npm/node_modules/.bin/{package}")));
    command
}
