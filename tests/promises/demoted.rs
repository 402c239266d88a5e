//! Promise 16: a primary that became one that takes no writes is let go, for the one that took its place.

use std::time::Duration;
use testkit::{Database, PostgresServer, trial, within};

#[test]
fn demoted_primary_is_replaced_by_the_promoted_standby() {
    let rounds = trial::rounds(1);
    let (mut slowest, mut acknowledged) = (Duration::ZERO, 0);
    for round in 1..=rounds {
        let (took, writes) = switch_over();
        (slowest, acknowledged) = (slowest.max(took), acknowledged + writes);
        println!("switch-over {round} of {rounds}: back after {took:?}");
    }
    trial::measured(&format!(
        "{rounds} switch-overs, writes back within {} ms of the promotion, none of {acknowledged} acknowledged lost",
        slowest.as_millis() + 1
    ));
}

/// How long after the promotion writes were back, and how many were acknowledged in all.
fn switch_over() -> (Duration, usize) {
    let old = PostgresServer::start();
    let first = old.database();
    let name = first.rsplit('/').next().unwrap();
    let standby = old.standby();
    let database =
        Database::url(format!("postgres://petstore@127.0.0.1:{},127.0.0.1:{}/{name}", old.port(), standby.port()));
    let key = database.make_key();
    let service = database.serve();
    let mut acknowledged = Vec::new();
    let mut create = |name: &str| {
        let answer = service.create_pet(&key, name);
        if answer.status == 201 {
            acknowledged.push((answer.json()["id"].to_string(), name.to_owned()));
        }
        answer.status
    };
    for n in 0..20 {
        assert_eq!(create(&format!("before-{n}")), 201);
    }

    old.set("default_transaction_read_only", "on");
    within(Duration::from_secs(5), "noticing", || create("between") == 503);
    // Reads too are given up, since what they see is old from now on.
    within(Duration::from_secs(5), "giving up reads", || service.get("/v1/pets", &key).status == 503);
    assert_eq!(service.get("/readyz", &key).status, 503);
    let position = old.sql(name, "SELECT pg_current_wal_lsn()");
    within(Duration::from_secs(10), "replaying", || {
        standby.sql(name, &format!("SELECT pg_last_wal_replay_lsn() >= '{position}'")) == "t"
    });
    standby.control(&["promote"]);
    standby.set("default_transaction_read_only", "off");
    let took = within(Duration::from_secs(5), "writing to the promoted one", || create("after") == 201);

    let kept = standby.sql(name, "SELECT id || '|' || name FROM pets ORDER BY id");
    let kept: Vec<_> = kept.lines().collect();
    for (id, name) in &acknowledged {
        assert!(kept.contains(&&*format!("{id}|{name}")), "{id} {name} was acknowledged and is lost");
    }
    assert!(service.get("/v1/pets?limit=100", &key).text.contains("after"));
    // The control: the old one goes on answering whoever holds on to it, and what it says is old.
    assert_eq!(old.sql(name, "SELECT count(*) > 0, count(*) FILTER (WHERE name = 'after') FROM pets"), "t|0");
    (took, acknowledged.len())
}
