//! A write whose answer was 503 may or may not have come to be: with an idempotency key, asking again settles it.

use std::thread;
use std::time::Duration;
use testkit::{Database, PostgresServer, Random, Server, within};

use crate::network::Network;
use crate::shop::{Operation, Shop};

const CLIENTS: usize = 8;

#[test]
fn retry_settles_requests_lost_by_the_network() {
    let server = PostgresServer::shared();
    let network = Network::to(server.port());
    let url = server.database();
    let shop = Shop::at(url.clone());
    let through = Database::url(url.replace(&format!(":{}/", server.port()), &format!(":{}/", network.port)));
    let service = through.serve();
    let mut random = Random::from_seed();
    settles(&shop, &service, || {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(random.below(100)));
            network.silence(true);
            // Longer than any operation waits.
            thread::sleep(Duration::from_millis(2_000 + random.below(500)));
            network.silence(false);
            thread::sleep(Duration::from_millis(500));
        }
    });
}

#[test]
fn retry_settles_requests_lost_by_a_database_crash() {
    let server = PostgresServer::start();
    let shop = Shop::at(server.database());
    let service = shop.database.serve();
    let mut random = Random::from_seed();
    settles(&shop, &service, || {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(300 + random.below(100)));
            server.control(&["stop", "-m", "immediate"]);
            server.control(&["start"]);
        }
    });
}

/// Clients write one after the other while `fault` happens, and ask for each until it is settled.
fn settles(shop: &Shop, service: &Server, fault: impl FnOnce()) {
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    let (asked, unsettled) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let done = &done;
                scope.spawn(move || {
                    let (mut asked, mut unsettled) = (0, 0);
                    while !done.load(order) {
                        let operation = Operation::ALL[client % Operation::ALL.len()];
                        let once = format!("{client}-{asked}");
                        let text = operation.text(service, &shop.key, &once);
                        let first = operation.ask(service, &shop.key, &once, &text);
                        unsettled += u32::from(first.status == 503);
                        let settled = operation.ask_until_settled(service, &shop.key, &once, &text);
                        assert_eq!(settled.status, operation.status(), "{settled:?}");
                        if first.status != 503 {
                            assert_eq!((first.body(), settled.is_replayed()), (settled.body(), true));
                        }
                        asked += 1;
                    }
                    (asked, unsettled)
                })
            })
            .collect();
        fault();
        done.store(true, order);
        let counts = clients.into_iter().map(|client| client.join().unwrap());
        counts.fold((0, 0), |(asked, unsettled), of_client| (asked + of_client.0, unsettled + of_client.1))
    });
    println!("{asked} writes, {unsettled} of which were answered 503 first");
    assert!(unsettled >= 2, "only {unsettled} were answered 503: the test has tested little");
    let effects = shop.effects();
    assert_eq!(effects.len(), asked);
    let doubled: Vec<_> = effects.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
}

/// A commit whose wait for the standby was cut short is there to be read, and no standby has it. Who asks again must not
/// be told that all is well.
#[test]
fn response_unknown_to_the_standby_is_not_replayed() {
    let server = PostgresServer::start();
    let shop = Shop::at(server.database());
    // The warning that tells of it comes all the same.
    server.sql("postgres", "ALTER ROLE petstore SET client_min_messages = error");
    let service = shop.database.serve();
    assert_eq!(service.create_pet(&shop.key, "Rex").status, 201);
    server.set("synchronous_standby_names", "nobody");
    within(Duration::from_secs(5), "waiting for the standby", || service.create_pet(&shop.key, "Rex").status == 503);
    // Ends that animal's wait, because it holds the lock that orders ids, and the next write must get as far as its own
    // wait.
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    within(Duration::from_secs(10), "ending its wait", || server.sql("postgres", cancel) == "0");

    for operation in Operation::OF_TEXT {
        operation.ask(&service, &shop.key, "a", "late").assert_unavailable();
    }
    let kept = || shop.sql("SELECT count(*) FROM idempotency_records").remove(0);
    within(Duration::from_secs(10), "cutting the waits short", || {
        server.sql("postgres", cancel);
        kept() == "2"
    });
    // The control: both are there for everybody to read.
    assert_eq!(shop.effects()["late"], 2);
    for operation in Operation::OF_TEXT {
        operation.ask(&service, &shop.key, "a", "late").assert_unavailable();
        // The first who asked again waits on, so that for now the key is theirs.
        assert_eq!(operation.ask(&service, &shop.key, "a", "late").status, 409);
    }

    server.set("synchronous_standby_names", "");
    for operation in Operation::OF_TEXT {
        let answer = operation.ask_until_settled(&service, &shop.key, "a", "late");
        assert_eq!((answer.status, answer.is_replayed()), (operation.status(), true), "{answer:?}");
    }
    assert_eq!(shop.effects()["late"], 2, "an animal and a message");
}
