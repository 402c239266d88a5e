//! The alerts and the dashboard in `ops/`, on a real Prometheus.

use testkit::{Folder, Process, petstore};

const CHECK_OPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/check-ops");

#[test]
fn rules_and_panels_have_data_and_alerts_fire() {
    let folder = Folder::new();
    let checked = Process::start(folder.program(CHECK_OPS).arg(petstore())).end();
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("have data\n") && checked.stdout.contains("fire when they should"), "{checked:?}");
}
