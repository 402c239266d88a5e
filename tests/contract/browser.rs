//! The API reference in a browser.

use std::process::Command;

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
    for operation in [
        r#"id="operations-pets-listPets""#,
        r#"id="operations-pets-createPet""#,
        r#"id="operations-pets-getPet""#,
        r#"id="operations-messages-sendMessage""#,
        r#"id="operations-store-listOrders""#,
        r#"id="operations-store-placeOrder""#,
        r#"id="operations-store-approveOrder""#,
        r#"id="operations-store-deliverOrder""#,
        r#"id="operations-store-cancelOrder""#,
        "opblock-deprecated",
    ] {
        assert!(page.contains(operation), "{operation} is not on the page:\n{page}");
    }
}
