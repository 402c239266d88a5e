//! Promise 5: no write is acknowledged without the synchronous standby.

use std::thread;
use std::time::Duration;

use testkit::{Database, PostgresServer, Shop, Stop, within};

const ROUNDS: u32 = 5;

#[test]
fn unconfirmed_commit_is_not_acknowledged() {
    let server = PostgresServer::start();
    let Shop { database, key } = Shop::on(Database::url(server.database()));
    let service = database.serve();
    assert_eq!(service.create_pet(&key, "Rex").status(), 201);

    server.set("synchronous_standby_names", "nobody");
    // PostgreSQL's processes notice the setting one by one. All have noticed it once the first write waits.
    within(Duration::from_secs(5), "waiting for the standby", || service.create_pet(&key, "Rex").status() == 503);
    for _ in 0..2 {
        service.create_pet(&key, "late").assert_unavailable();
        service.send_message(&key, "late").assert_unavailable();
    }

    let stop = Stop::new();
    let cancelled = thread::scope(|scope| {
        let stop_on_drop = stop.on_drop();
        let cancelling = scope.spawn(|| {
            let mut cancelled = 0;
            while !stop.is_requested() {
                cancelled += server.cancel_waits_for_standbys();
            }
            cancelled
        });
        for _ in 0..ROUNDS {
            let send = |client: usize| match client % 2 {
                0 => service.create_pet(&key, "cancelled"),
                _ => service.send_message(&key, "cancelled"),
            };
            let clients = [0, 1, 2, 3].map(|client| scope.spawn(move || send(client)));
            clients.into_iter().for_each(|client| client.join().unwrap().assert_unavailable());
        }
        drop(stop_on_drop);
        cancelling.join().unwrap()
    });
    assert!(cancelled >= ROUNDS, "only {cancelled} waits were cancelled: little was tested");
    // Control: PostgreSQL committed these writes and reported success.
    assert_eq!(database.sql("SELECT count(*) > 0 FROM pets WHERE name = 'cancelled'"), "t");

    server.set("synchronous_standby_names", "");
    within(Duration::from_secs(5), "recovery", || service.create_pet(&key, "after").status() == 201);
}
