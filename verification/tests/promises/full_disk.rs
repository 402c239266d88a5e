//! Promise 13: on a full disk the service rejects writes and serves reads, and it recovers without a restart.

use std::fs;
use std::time::Duration;

use testkit::{Random, TIMEOUT, trial, within};
use verification::writers::Mix;
use verification::{Ledger, SmallDisk, Writers};

/// The disk counts as full after this many consecutive rejected writes. A single small write may still find space.
const IN_A_ROW: u32 = 10;

#[test]
fn full_disk_rejects_writes_and_serves_reads() {
    let (rounds, mut random) = (trial::rounds(3), Random::from_seed());
    let disk = SmallDisk::new();
    let database = disk.database();
    let (key, ledger) = (database.make_key(), Ledger::default());
    let mut service = database.serve();
    let load = Writers::start(&service, &key, &ledger, "load", Mix { length: 2_000, ..Mix::MIXED });
    let mut slowest = Duration::ZERO;
    for round in trial::counted(rounds) {
        // Control: with free space, nothing is rejected.
        assert_eq!(ledger.create_pet(&service, &key, &format!("free-{round}")).status(), 201);
        random.sleep(50..250);
        disk.fill();
        // The log file has reusable space, which is used up first.
        let (mut tries, mut in_a_row) = (0, 0);
        within(TIMEOUT, "filling up", || {
            tries += 1;
            let response = ledger.create_pet(&service, &key, &format!("full-{round}-{tries}"));
            if response.status() == 201 {
                in_a_row = 0;
            } else {
                response.assert_unavailable();
                in_a_row += 1;
            }
            in_a_row == IN_A_ROW
        });
        for path in ["/v1/pets", "/v1/pets/1", "/livez"] {
            assert_eq!(service.get(path, &key).status(), 200, "{path}");
        }
        let warned = r#"{"status":"ready","warnings":["disk_space_low"]}"#;
        within(Duration::from_secs(1), "readiness and a warning", || service.get("/readyz", &key).body == warned);
        disk.free();
        let mut tries = 0;
        let back = within(Duration::from_secs(5), "recovery", || {
            tries += 1;
            ledger.create_pet(&service, &key, &format!("again-{round}-{tries}")).status() == 201
        });
        slowest = slowest.max(back);
    }
    load.stop();
    assert!(service.stop().success());
    // A start needs space for the index of the log if it is missing.
    fs::remove_file(disk.file("petstore.db-shm")).unwrap();
    disk.fill();
    let elsewhere = tempfile::tempdir().unwrap();
    for command in ["account list", "serve", &format!("backup {}", elsewhere.path().join("backup").display())] {
        let stderr = database.rejects(command);
        assert!(stderr.contains(": the disk is full"), "{command}: {stderr}");
    }
    disk.free();
    database.run("account list");
    let copied = disk.copy();
    ledger.compare(&copied).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} cycles of one process: writes 503 with `Retry-After`, reads 200, writes back within {} ms of free \
         space; {ledger}; 0 lost, none of the unavailable there; {}",
        slowest.as_millis(),
        ledger.notices_damage(&copied)
    ));
}
