//! The API reference, as a browser shows it.

use std::process::Command;

use crate::process::{Petstore, run};

#[test]
fn the_reference_shows_every_operation() {
    let service = Petstore::start();
    let folder = tempfile::tempdir().unwrap();
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        // The sandbox refuses to work for root, which is who runs tests in a container.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        // Until nothing is left to do on the page, or this many milliseconds of its own time went by.
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
