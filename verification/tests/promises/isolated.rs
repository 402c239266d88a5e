//! Promise 43: a primary that its standby cannot reach acknowledges no write, and its reads do not stay stale.
//!
//! This is the short form, with one primary, one standby and no Patroni. `verification/faults/isolated.py` is the full one.

use std::thread;
use std::time::Duration;

use testkit::{Database, PostgresServer, TIMEOUT, within};
use verification::Network;

use crate::one_server::both;

/// Time after which reads must have ended: `wal_sender_timeout`, which is 1 s here, the interval of petstore's checks and
/// the timeout of one, on a busy machine.
const READS_END: Duration = Duration::from_secs(10);

#[test]
fn isolated_primary_acknowledges_nothing_and_stops_reads() {
    let old = PostgresServer::start();
    let url = old.database();
    let name = url.rsplit('/').next().unwrap();
    let network = Network::to(old.port());
    let standby = old.standby_through(network.port());
    old.set("wal_sender_timeout", "1s");
    old.set("synchronous_standby_names", "*");
    within(TIMEOUT, "a synchronous standby", || {
        old.sql(name, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    });
    let key = Database::url(&url).make_key();
    let isolated = Database::url(&url).with_default_timeout();
    let (checked, unchecked) = (isolated.serve_with("--require-standbys"), isolated.serve());
    let mut acknowledged = Vec::new();
    for number in 0..5 {
        let pet = format!("before-{number}");
        assert_eq!(checked.pet_request(&key, &pet).send_until_available().status(), 201);
        acknowledged.push(pet);
    }

    network.silence(true);
    for number in 0..3 {
        for process in [&checked, &unchecked] {
            process.create_pet(&key, &format!("wrong-side-{number}")).assert_unavailable();
        }
    }
    standby.control(&["promote"]);
    let other_side = Database::url(standby.url(name)).serve();
    let created = other_side.create_pet(&key, "elsewhere");
    assert_eq!(created.status(), 201);
    acknowledged.push("elsewhere".into());
    let path = format!("/v1/pets/{}", created.id());
    within(READS_END, "the end of reads", || checked.get(&path, &key).status() == 503);
    for _ in 0..20 {
        assert_eq!(checked.get(&path, &key).status(), 503);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(checked.get("/readyz", &key).status(), 503);
    // Control: without the setting, reads are stale.
    within(TIMEOUT, "a stale read", || unchecked.get(&path, &key).status() == 404);

    // Control: a client that does not wait for the standby loses its write.
    let insert = "INSERT INTO pets (name, category_id, status) VALUES ('local', 1, 0)";
    old.sql(name, &format!("SET synchronous_commit = local; {insert}"));
    let stored = standby.sql(name, "SELECT name FROM pets");
    let stored: Vec<_> = stored.lines().collect();
    let lost: Vec<_> = acknowledged.iter().filter(|pet| !stored.contains(&pet.as_str())).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(!stored.contains(&"local"), "the control loses its write");
}

#[test]
fn process_leaves_an_isolated_primary_for_the_promoted_standby() {
    let old = PostgresServer::start();
    let url = old.database();
    let name = url.rsplit('/').next().unwrap();
    let standby = old.standby();
    old.set("synchronous_standby_names", "*");
    let key = Database::url(&url).make_key();
    let servers = Database::url(both(&url, old.port(), standby.port())).with_default_timeout();
    let process = servers.serve_with("--require-standbys");
    let created = process.pet_request(&key, "before").send_until_available();
    assert_eq!(created.status(), 201);
    let path = format!("/v1/pets/{}", created.id());
    let serves = |name| process.create_pet(&key, name).status() == 201 && process.get(&path, &key).status() == 200;

    standby.control(&["stop"]);
    within(READS_END, "the end of reads", || process.get(&path, &key).status() == 503);
    standby.control(&["start"]);
    within(TIMEOUT, "the same primary with its standby", || serves("returned"));

    standby.control(&["promote"]);
    within(TIMEOUT, "the promoted standby", || serves("promoted"));
    assert_ne!(standby.sql(name, "SELECT count(*) FROM pets WHERE name = 'promoted'"), "0");
}
