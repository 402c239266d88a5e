//! Promise 13: a full disk is survived.

use std::thread;
use std::time::Duration;
use testkit::writers::Mix;
use testkit::{Ledger, Random, TIMEOUT, Writers, trial, within};

use crate::small_disk::SmallDisk;

/// How many writes one after the other are refused by a disk that has room for none.
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
    for round in 1..=rounds {
        // The control: while there is room, nothing is refused.
        assert_eq!(ledger.create_pet(&service, &key, &format!("roomy-{round}")).status, 201);
        thread::sleep(Duration::from_millis(50 + random.below(200)));
        disk.fill();
        // The log has room left from before, which is taken up first.
        let mut tries = 0;
        let mut refused = || {
            tries += 1;
            let answer = ledger.create_pet(&service, &key, &format!("full-{round}-{tries}"));
            (answer.status == 503).then_some(answer)
        };
        // A small write may still find room where a larger one did not: full is a disk that refuses one after the other.
        let mut in_a_row = 0;
        within(TIMEOUT, "filling up", || {
            in_a_row = refused().map_or(0, |answer| {
                answer.assert_unavailable();
                in_a_row + 1
            });
            in_a_row == IN_A_ROW
        });
        for path in ["/v1/pets", "/v1/pets/1", "/livez"] {
            assert_eq!(service.get(path, &key).status, 200, "{path}");
        }
        disk.free();
        let mut tries = 0;
        let back = within(Duration::from_secs(5), "coming back", || {
            tries += 1;
            ledger.create_pet(&service, &key, &format!("free-{round}-{tries}")).status == 201
        });
        slowest = slowest.max(back);
        println!("round {round} of {rounds}: back after {back:?}; {ledger}");
    }
    load.stop();
    assert!(service.stop().success());
    let copy = tempfile::tempdir().unwrap();
    disk.copy(copy.path());
    ledger.compare(copy.path()).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} cycles of one process: writes 503 with `Retry-After`, reads 200, writes back within {} ms of there being \
         room; {ledger}; 0 lost, none of the unavailable there; {}",
        slowest.as_millis(),
        ledger.notices_damage(copy.path())
    ));
}
