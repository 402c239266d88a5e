//! The relay and its database: rights, several processes, failures, and the end of sent messages.

use std::collections::HashSet;

use testkit::postgres::{query, try_query};
use testkit::{Database, Endpoint, PostgresServer, RelayedShop, Request, Server, Shop, Signal, TIMEOUT, within};

/// Grants the documented rights to a role that serves, and no others. Returns the URL of that role.
fn grant_to_serve(url: &str) -> String {
    let (_, page) = include_str!("../../../docs/scale-out.md").split_once("```sql\n").unwrap();
    let (grants, _) = page.split_once("```").unwrap();
    let (role, database) = ("petstore_serve", url.rsplit('/').next().unwrap());
    query(url, &format!("REVOKE ALL ON DATABASE {database} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC"));
    query(url, &grants.replace("DATABASE petstore", &format!("DATABASE {database}")));
    url.replacen("//petstore@", &format!("//{role}@"), 1)
}

#[test]
fn documented_grants_suffice_to_serve_and_relay() {
    let owner = PostgresServer::shared().database();
    assert!(Database::url(&owner).petstore("migrate").status().unwrap().success());
    let url = grant_to_serve(&owner);
    let shop = Shop::on(Database::url(&url));
    let (hooked, endpoint) = (RelayedShop::of(shop), Endpoint::acknowledging());
    hooked.folder.write("animals", r#"{"name":"Rex","categoryId":1}"#);
    hooked.shop.database.run(&format!("pets import {}", hooked.folder.path("animals").display()));

    let server = hooked.serve(&endpoint);

    hooked.shop.send(&server, "Hello");
    endpoint.arrived(1);
    for (path, body) in [("/v1/pets", r#"{"name":"Mimi","categoryId":1}"#), ("/v1/store/orders", r#"{"petId":1}"#)] {
        let request =
            Request::new(server.store(), "POST", path).key(&hooked.shop.key).header("idempotency-key", "once");
        let answer = request.json(body).send_blocking();
        assert_eq!(answer.status(), 201, "{path}: {answer:?}");
    }
    hooked.shop.assert_nothing_waits();
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    // Control: this role owns no tables.
    let refused = try_query(&url, "CREATE INDEX ON messages (created_at)").unwrap_err();
    assert!(refused.contains("must be owner"), "{refused}");
}

#[test]
fn second_process_takes_over_the_relay() {
    for hooked in RelayedShop::on_every_database() {
        let (shop, endpoint) = (&hooked.shop, Endpoint::acknowledging());
        let (one, other) = (hooked.serve(&endpoint), hooked.serve(&endpoint));
        for n in 0..50 {
            shop.send(&one, &format!("to one: {n}"));
            shop.send(&other, &format!("to the other: {n}"));
        }
        endpoint.arrived(100);
        let active = one.metric("petstore_relay_active");
        assert_eq!(active + other.metric("petstore_relay_active"), 1.0);

        let (dies, lives) = if active == 1.0 { (one, other) } else { (other, one) };
        shop.send_numbered(&lives, "before", 20);
        dies.end_by(Signal::KILL);
        shop.send_numbered(&lives, "after", 20);

        // Messages in flight at the kill are sent again.
        let ids = || endpoint.deliveries().iter().map(|delivery| delivery.id().to_owned()).collect::<HashSet<_>>();
        within(TIMEOUT, "relaying", || ids().len() == 140);
        shop.assert_nothing_waits();
        assert_eq!(lives.metric("petstore_relay_active"), 1.0);
        lives.end_by(Signal::TERM);
    }
}

#[test]
fn failure_of_the_database_is_logged() {
    let (hooked, endpoint) = (RelayedShop::on_sqlite(), Endpoint::acknowledging());
    let server = hooked.serve(&endpoint);
    hooked.shop.database.sql("ALTER TABLE messages RENAME TO elsewhere");
    let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();
    assert!(why.contains("database: no such table"), "{why}");
    hooked.shop.database.sql("ALTER TABLE elsewhere RENAME TO messages");
    server.logged("relaying messages again");
    server.end_by(Signal::TERM);
}

#[test]
fn sent_messages_are_deleted_after_their_retention() {
    let (hooked, mut endpoint) = (RelayedShop::on_sqlite(), Endpoint::acknowledging());
    let mut command = hooked.command(&endpoint.url());
    let server = Server::start(command.args(["--relay-retention", "1s"]));
    hooked.shop.send_numbered(&server, "message", 5);
    endpoint.arrived(5);
    endpoint.kill();
    hooked.shop.send(&server, "it waits");

    within(TIMEOUT, "deleting sent messages", || hooked.shop.messages("").len() == 1);
    assert_eq!(hooked.shop.messages("")[0]["message"], "it waits");
    server.end_by(Signal::TERM);
}
