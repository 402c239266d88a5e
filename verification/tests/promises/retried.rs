//! A write answered with 503 may or may not be committed. Sending it again with its idempotency key settles that.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use testkit::trial::is_full;
use testkit::{Database, PostgresServer, Random, Shop, Stop, within};
use verification::Network;

use crate::keyed::{Operation, assert_effects_are_single, effects};

const CLIENTS: usize = 8;

/// Clients send requests while the network is silent again and again, and repeat each one until it is settled.
#[test]
fn retry_settles_requests_lost_by_the_network() {
    let network = Network::to(PostgresServer::shared().port());
    let url = PostgresServer::shared().database();
    let shop = Shop::on(Database::url(&url));
    let service = Database::url(network.url(&url)).with_default_timeout().serve();
    let mut random = Random::from_seed();
    let (stop, unavailable) = (Stop::new(), AtomicU32::new(0));
    let work = |client: usize| {
        let (operation, key) = (Operation::of(client), &shop.key);
        let mut sent = 0;
        while !stop.is_requested() {
            let once = format!("{client}-{sent}");
            let text = operation.text(&service, key, &once);
            let first = operation.send(&service, key, &once, &text);
            let settled = operation.send_until_settled(&service, key, &once, &text);
            assert_eq!(settled.status(), operation.status(), "{settled:?}");
            if first.status() == 503 {
                unavailable.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!((first.body, settled.is_replayed()), (settled.body.clone(), true));
            }
            sent += 1;
        }
        sent
    };
    let counts: Vec<usize> = thread::scope(|scope| {
        let (work, stop_on_drop) = (&work, stop.on_drop());
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || work(client))).collect();
        for _ in 0..2 {
            random.sleep(0..100);
            network.silence(true);
            // Longer than the timeout of any operation.
            random.sleep(2_000..2_500);
            network.silence(false);
            thread::sleep(Duration::from_millis(500));
        }
        drop(stop_on_drop);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let unavailable = unavailable.into_inner();
    assert!(unavailable >= 2, "only {unavailable} requests got a 503: little was tested");
    assert_effects_are_single(&shop.database, counts.iter().sum());
}

/// A commit whose wait for the standby is cancelled is visible, but no standby has it. A retry must not report success.
#[test]
fn response_unknown_to_the_standby_is_not_replayed() {
    let server = PostgresServer::start();
    let shop = Shop::on(Database::url(server.database()));
    // PostgreSQL still sends the warning about the cancelled wait.
    server.sql("postgres", "ALTER ROLE petstore SET client_min_messages = error");
    let service = shop.database.clone().with_default_timeout().serve();
    assert_eq!(service.pet_request(&shop.key, "Rex").send_until_available().status(), 201);
    server.set("synchronous_standby_names", "nobody");
    within(Duration::from_secs(5), "waiting for the standby", || service.create_pet(&shop.key, "Rex").status() == 503);
    // The waiting write holds the lock that orders ids, so the next write would not reach its own wait.
    within(Duration::from_secs(10), "cancelling the wait", || server.cancel_waits_for_standbys() == 0);

    let send_late = || {
        for operation in Operation::OF_TEXT {
            operation.send(&service, &shop.key, "a", "late").assert_unavailable();
        }
    };
    send_late();
    within(Duration::from_secs(10), "cancelling the waits", || {
        server.cancel_waits_for_standbys();
        let are_there = shop.database.sql("SELECT count(*) FROM idempotency_records") == "2";
        // On a busy machine, one may not have reached its commit.
        if !are_there && !is_full() {
            send_late();
        }
        are_there
    });
    // Control: both are visible.
    assert_eq!(effects(&shop.database)["late"], 2);
    for operation in Operation::OF_TEXT {
        // A retry is refused at once while earlier commits wait, such as that of the key's last use.
        within(Duration::from_secs(20), "the retry's own wait", || {
            while server.cancel_waits_for_standbys() > 0 {}
            operation.send(&service, &shop.key, "a", "late").assert_unavailable();
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'";
            shop.database.sql(waiting) == "1"
        });
    }

    server.set("synchronous_standby_names", "");
    for operation in Operation::OF_TEXT {
        let response = operation.send_until_settled(&service, &shop.key, "a", "late");
        assert_eq!((response.status(), response.is_replayed()), (operation.status(), true), "{response:?}");
    }
    assert_eq!(effects(&shop.database)["late"], 2, "an animal and a message");
}
