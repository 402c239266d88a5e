//! Promise 1: an acknowledged write survives a crash.

use testkit::{Random, Server, Shop, TIMEOUT, trial, within};
use verification::writers::{Mix, Write};
use verification::{Ledger, Writers};

/// Writes with keys, so that a write without a response can be sent again after the crash.
const MIX: Mix = Mix { keyed: true, ..Mix::MIXED };

#[test]
fn acknowledged_write_survives_kill_9() {
    let (rounds, mut random) = (trial::rounds(10), Random::from_seed());
    let Shop { database, key } = Shop::on_sqlite();
    let ledger = Ledger::default();
    let (mut unanswered, mut settled) = (Vec::new(), 0);
    for round in trial::counted(rounds) {
        let mut service = database.serve();
        send_again(&mut unanswered, &service, &ledger);
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), MIX);
        random.sleep(20..220);
        within(TIMEOUT, "writes", || ledger.acknowledged() > 10 * round as usize);
        service.kill();
        unanswered = load.join();
        let differences = ledger.compare(&database);
        differences.assert_nothing_refused_is_there();
        settled += differences.settled;
    }
    let mut service = database.serve();
    send_again(&mut unanswered, &service, &ledger);
    ledger.compare(&database).assert_nothing_refused_is_there();
    assert!(settled > 0, "no crash came between a commit and its response: little was tested");
    assert_eq!(ledger.unavailable(), 0, "a healthy service rejects no write");
    let outcomes = ledger.to_string();
    // Control: a write that is sent again without a key is stored twice.
    assert_eq!(service.create_pet(&key, "twice").status(), 201);
    ledger.sent("twice");
    assert_eq!(service.create_pet(&key, "twice").status(), 201);
    assert_eq!(ledger.compare(&database).doubled, ["twice"]);
    service.stop();
    trial::measured(&format!(
        "{rounds} rounds, {outcomes}; writes without a response were sent again with their keys, and {settled} of them were \
         there already; 0 lost, 0 doubled, `integrity_check` ok each time; {}, and a write without its key is there twice",
        ledger.notices_damage(&database)
    ));
}

fn send_again(unanswered: &mut Vec<Write>, service: &Server, ledger: &Ledger) {
    for write in unanswered.drain(..) {
        write.send_again(service, ledger);
    }
}
