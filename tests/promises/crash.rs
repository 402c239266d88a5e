//! Promise 1: an acknowledged write survives a crash.

use std::thread;
use std::time::Duration;
use testkit::writers::{Mix, Write};
use testkit::{Database, Ledger, Random, Server, Writers, trial};

/// Each has a key, by which what was not answered is asked for again after the crash.
const KIND: Mix = Mix { keyed: true, ..Mix::MIXED };

#[test]
fn acknowledged_write_survives_kill_9() {
    let (rounds, mut random) = (trial::rounds(10), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let (key, ledger) = (database.make_key(), Ledger::default());
    let (mut unanswered, mut settled) = (Vec::new(), 0);
    for round in 1..=rounds {
        let mut service = database.serve();
        send_again(&mut unanswered, &service, &ledger);
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), KIND);
        thread::sleep(Duration::from_millis(20 + random.below(200)));
        service.kill();
        unanswered = load.join();
        let differences = ledger.compare(folder.path());
        differences.assert_nothing_refused_is_there();
        settled += differences.settled;
        if round % 20 == 0 {
            println!("round {round} of {rounds}: {ledger}");
        }
    }
    let mut service = database.serve();
    send_again(&mut unanswered, &service, &ledger);
    ledger.compare(folder.path()).assert_nothing_refused_is_there();
    let acknowledged = ledger.acknowledged();
    assert!(acknowledged > 10 * rounds as usize, "only {acknowledged} were acknowledged: the test has tested little");
    assert!(settled > 0, "no crash came between a commit and its answer: the test has tested little");
    assert_eq!(ledger.unavailable(), 0, "none is refused by a service that works");
    let told = ledger.to_string();
    // The control: without its key, what is sent again is there twice.
    assert_eq!(service.create_pet(&key, "twice").status, 201);
    ledger.sent("twice");
    assert_eq!(service.create_pet(&key, "twice").status, 201);
    assert_eq!(ledger.compare(folder.path()).doubled, ["twice"]);
    service.stop();
    trial::measured(&format!(
        "{rounds} rounds, {told}; what was not answered was sent again with its key, and {settled} of that was there \
         already; 0 lost, 0 doubled, `integrity_check` ok each time; {}, and one without its key is there twice",
        ledger.notices_damage(folder.path())
    ));
}

fn send_again(unanswered: &mut Vec<Write>, service: &Server, ledger: &Ledger) {
    for write in unanswered.drain(..) {
        write.send_again(service, ledger);
    }
}
