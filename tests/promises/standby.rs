//! Promise 5: without its synchronous standby nothing is said to be safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::blocking::Response;
use testkit::{Database, PostgresServer, within};

const ROUNDS: u32 = 5;

#[test]
fn unconfirmed_commit_is_not_acknowledged() {
    let server = PostgresServer::start();
    let database = Database::url(server.database());
    let key = database.make_key();
    let service = Arc::new(database.serve());
    assert_eq!(service.create_pet(&key, "Rex").status, 201);

    server.set("synchronous_standby_names", "nobody");
    // A primary tells its processes one by one; from the first write that waits on, all know.
    within(Duration::from_secs(5), "waiting for the standby", || service.create_pet(&key, "Rex").status == 503);
    for _ in 0..2 {
        service.create_pet(&key, "late").assert_unavailable();
        service.send_message(&key, "late").assert_unavailable();
    }

    // Whoever cancels the wait makes PostgreSQL report a success, with a warning.
    let cancelling = Arc::new(AtomicBool::new(true));
    let cancelled = thread::spawn({
        let (cancelling, url) = (Arc::clone(&cancelling), server.url("postgres"));
        move || {
            let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            let mut cancelled = 0;
            while cancelling.load(Ordering::SeqCst) {
                cancelled += testkit::postgres::query(&url, cancel).parse::<u32>().unwrap();
            }
            cancelled
        }
    });
    for _ in 0..ROUNDS {
        let clients = (0..4).map(|client| {
            let (service, key) = (Arc::clone(&service), key.clone());
            thread::spawn(move || match client % 2 {
                0 => service.create_pet(&key, "cancelled"),
                _ => service.send_message(&key, "cancelled"),
            })
        });
        let answers: Vec<Response> =
            clients.collect::<Vec<_>>().into_iter().map(|client| client.join().unwrap()).collect();
        answers.iter().for_each(Response::assert_unavailable);
    }
    cancelling.store(false, Ordering::SeqCst);
    let cancelled = cancelled.join().unwrap();
    assert!(cancelled >= ROUNDS, "only {cancelled} waits were cancelled: the test has tested little");
    // The control: these commits did come to be, and would have been answered with 201.
    let kept = "SELECT count(*) > 0 FROM pets WHERE name = 'cancelled'";
    let database = server.sql("postgres", "SELECT datname FROM pg_database WHERE datname LIKE 'test%'");
    assert_eq!(server.sql(&database, kept), "t");

    server.set("synchronous_standby_names", "");
    within(Duration::from_secs(5), "writing again", || service.create_pet(&key, "after").status == 201);
}
