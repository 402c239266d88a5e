//! Promise 1: an acknowledged write survives a crash.

use std::thread;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::load::{Kind, Load};
use crate::process::{Database, Process};
use crate::trial::{self, Random};

#[test]
fn an_acknowledged_write_survives_kill_9() {
    let (rounds, mut random) = (trial::rounds(10), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let (key, ledger) = (database.make_key(), Ledger::default());
    for round in 1..=rounds {
        let mut service = Process::serve(&database);
        let load = Load::start(&service, &key, &ledger, &round.to_string(), Kind::MIXED);
        thread::sleep(Duration::from_millis(20 + random.below(200)));
        service.kill();
        load.join();
        ledger.compare(folder.path()).assert_nothing_refused_is_there();
        if round % 20 == 0 {
            println!("round {round} of {rounds}: {ledger}");
        }
    }
    let acknowledged = ledger.acknowledged();
    assert!(acknowledged > 10 * rounds as usize, "only {acknowledged} were acknowledged: the test has tested little");
    assert_eq!(ledger.unavailable(), 0, "none is refused by a service that works");
    let settled = ledger.compare(folder.path()).settled;
    trial::measured(&format!(
        "{rounds} rounds, {ledger} ({settled} of them there); 0 lost, 0 doubled, `integrity_check` ok each time; {}",
        ledger.notices_damage(folder.path())
    ));
}
