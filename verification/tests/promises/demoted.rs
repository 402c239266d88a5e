//! Promise 16: the service abandons a primary that rejects writes and connects to the promoted standby.

use std::time::Duration;

use testkit::{Database, PostgresServer, trial, within};

/// `--database-timeout` in a short run. A server that accepts no writes is left after 5 s.
const PATIENT: &str = "20s";

#[test]
fn demoted_primary_is_replaced_by_the_promoted_standby() {
    let rounds = trial::rounds(1);
    let (mut slowest, mut acknowledged) = (Duration::ZERO, 0);
    for _ in trial::counted(rounds) {
        let (took, writes) = switch_over();
        (slowest, acknowledged) = (slowest.max(took), acknowledged + writes);
    }
    trial::measured(&format!(
        "{rounds} switch-overs, writes back within {} ms of the promotion, none of {acknowledged} acknowledged lost",
        slowest.as_millis() + 1
    ));
}

/// Returns the time from the promotion to the next write, and the number of acknowledged writes.
fn switch_over() -> (Duration, usize) {
    let old = PostgresServer::start();
    let first = old.database();
    let name = first.rsplit('/').next().unwrap();
    let standby = old.standby();
    let database =
        Database::url(format!("postgres://petstore@127.0.0.1:{},127.0.0.1:{}/{name}", old.port(), standby.port()));
    let database = database.with_timeout(PATIENT);
    let key = database.make_key();
    let service = database.serve();
    let mut acknowledged = Vec::new();
    let mut create = |name: &str| {
        let response = service.create_pet(&key, name);
        if response.status() == 201 {
            acknowledged.push(format!("{}|{name}", response.id()));
        }
        response.status()
    };
    for n in 0..20 {
        assert_eq!(create(&format!("before-{n}")), 201);
    }

    old.set("default_transaction_read_only", "on");
    within(Duration::from_secs(5), "rejecting writes", || create("between") == 503);
    // Reads are rejected too, because the old primary's data becomes stale.
    within(Duration::from_secs(5), "rejecting reads", || service.get("/v1/pets", &key).status() == 503);
    assert_eq!(service.get("/readyz", &key).status(), 503);
    let position = old.sql(name, "SELECT pg_current_wal_lsn()");
    within(Duration::from_secs(10), "replaying", || {
        standby.sql(name, &format!("SELECT pg_last_wal_replay_lsn() >= '{position}'")) == "t"
    });
    standby.control(&["promote"]);
    standby.set("default_transaction_read_only", "off");
    let took = within(Duration::from_secs(5), "writing to the promoted standby", || create("after") == 201);

    let stored = standby.sql(name, "SELECT id, name FROM pets");
    let stored: Vec<_> = stored.lines().collect();
    for pet in &acknowledged {
        assert!(stored.contains(&pet.as_str()), "{pet} was acknowledged and is lost");
    }
    // The connection for reads is restored by itself.
    within(Duration::from_secs(5), "reading from the promoted standby", || {
        service.get("/v1/pets?limit=100", &key).body.contains("after")
    });
    // Control: the old primary still answers its clients, with stale data.
    assert_eq!(old.sql(name, "SELECT count(*) > 0, count(*) FILTER (WHERE name = 'after') FROM pets"), "t|0");
    (took, acknowledged.len())
}
