//! The API reference in a browser.

use std::process::Command;

use petstore::http::Operation;

use crate::process::{Petstore, run};

#[test]
fn reference_shows_every_operation() {
    let service = Petstore::start();
    let folder = tempfile::tempdir().unwrap();
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        // The sandbox does not work for root, and tests in a container run as root.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        // Ends when the page is idle, or after this many milliseconds of virtual time.
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("{}/docs", service.store));
    let output = run(&mut chromium, folder.path());
    let page = String::from_utf8_lossy(&output.stdout);
    for operation in Operation::documented() {
        let link = format!("{}{}\"", operation.method(), operation.api_path());
        assert!(page.contains(&link), "{operation:?} is not on the page: {page}");
    }
    assert!(page.contains("endpoint-path deprecated"), "{page}");
}
