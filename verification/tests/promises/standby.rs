//! Promise 5: no write is acknowledged without the synchronous standby.

use std::thread;
use std::time::Duration;

use testkit::{Database, PostgresServer, Shop, Stop, within};

#[test]
fn unconfirmed_commit_is_not_acknowledged() {
    let server = PostgresServer::start();
    let Shop { database, key } = Shop::on(Database::url(server.database()));
    let service = database.clone().with_default_timeout().serve();
    assert_eq!(service.pet_request(&key, "Rex").send_until_available().status(), 201);

    server.set("synchronous_standby_names", "nobody");
    // PostgreSQL's processes notice the setting one by one. All have noticed it once the first write waits.
    within(Duration::from_secs(5), "waiting for the standby", || service.create_pet(&key, "Rex").status() == 503);
    for _ in 0..2 {
        service.create_pet(&key, "late").assert_unavailable();
        service.send_message(&key, "late").assert_unavailable();
    }
    // Each would occupy a connection of the server. Two do, because the first ones may only be slow.
    (0..5).for_each(|_| service.send_message(&key, "later").assert_unavailable());
    let waiting = database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    assert!((1..=4).contains(&waiting.parse().unwrap()), "{waiting} commits occupy connections");

    let stop = Stop::new();
    thread::scope(|scope| {
        let _stop_on_drop = stop.on_drop();
        scope.spawn(|| {
            while !stop.is_requested() {
                server.cancel_waits_for_standbys();
            }
        });
        // PostgreSQL commits these writes and reports success. While another one waits, they are refused before that.
        within(Duration::from_secs(30), "cancelled commits", || {
            let send = |client: usize| match client % 2 {
                0 => service.create_pet(&key, "cancelled"),
                _ => service.send_message(&key, "cancelled"),
            };
            let clients = [0, 1, 2, 3].map(|client| scope.spawn(move || send(client)));
            clients.into_iter().for_each(|client| client.join().unwrap().assert_unavailable());
            let committed = "SELECT least((SELECT count(*) FROM pets WHERE name = 'cancelled'),
                (SELECT count(*) FROM messages WHERE message = 'cancelled'))";
            database.sql(committed).parse::<u32>().unwrap() >= 5
        });
    });

    server.set("synchronous_standby_names", "");
    within(Duration::from_secs(5), "recovery", || service.create_pet(&key, "after").status() == 201);
}
