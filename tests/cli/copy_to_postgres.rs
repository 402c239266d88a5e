//! `petstore move --to postgres://…`

use expect_test::expect;
use testkit::postgres::query;
use testkit::{Folder, PostgresServer, Process, Signal};

/// A folder with an account, keys, animals, an order and a message, and one of the keys.
async fn filled() -> (Folder, String) {
    let folder = Folder::with_account();
    let key = folder.key();
    folder.key();
    folder.succeed("key revoke 2");
    let animals = (0..1500).map(|n| format!("{{\"name\":\"ß🦊{n}\",\"categoryId\":{}}}\n", i64::MIN + n));
    folder.write("animals.ndjson", animals.collect::<String>());
    folder.succeed("pets import animals.ndjson");
    let server = folder.serve("serve");
    let sent = keyed_message(&server, &key).send().await;
    assert_eq!((sent.status(), sent.header("idempotent-replayed")), (202, None));
    let order = testkit::Request::new(server.address("store"), "POST", "/v1/store/orders");
    assert_eq!(order.key(&key).json(r#"{"petId":7}"#).send().await.status(), 201);
    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);
    server.end_by(Signal::TERM);
    (folder, key)
}

fn keyed_message(server: &testkit::Server, key: &str) -> testkit::Request {
    let message = testkit::Request::new(server.address("messages"), "POST", "/v1/messages");
    message.key(key).header("idempotency-key", "hello").json(r#"{"message":"Hello\n🦊"}"#)
}

#[tokio::test]
async fn everything_is_copied_and_stays_usable() {
    let (folder, key) = filled().await;
    let url = PostgresServer::shared().database();

    let moved = folder.run(&format!("move --to {url}")).shown().replace(&url, "URL");
    // A URL without a password is displayed in full.
    expect![[r#"
        exit 0
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        moved 1 account, 2 keys, 1,500 animals, 1 order, 1 message, 0 sessions, 1 stored response to URL
    "#]]
    .assert_eq(&moved);

    let here = folder.succeed("pets export");
    assert_eq!(here, folder.succeed(&format!("pets export --database-url {url}")));
    assert_eq!(folder.succeed("key list --json"), folder.succeed(&format!("key list --json --database-url {url}")));
    let message = "SELECT message, account_id, substr(replace(id::text, '-', ''), 13, 1) FROM messages";
    assert_eq!(query(&url, message), "Hello\n🦊|1|7");

    assert_eq!(query(&url, "SELECT id, account_id, pet_id, status FROM orders"), "1|1|7|0");

    let server = folder.serve(&format!("serve --database-url {url}"));
    let created = testkit::Request::new(server.address("store"), "POST", "/v1/pets");
    let created = created.key(&key).json(r#"{"name":"Rex","categoryId":1}"#).send().await;
    assert_eq!(created.json()["id"], 1501);
    let again = keyed_message(&server, &key).send().await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (202, Some("true")));
    for (body, told) in [(r#"{"petId":7}"#, r#""code":"conflict""#), (r#"{"petId":8}"#, r#"{"id":2,"petId":8,"#)] {
        let order = testkit::Request::new(server.address("store"), "POST", "/v1/store/orders");
        let answer = order.key(&key).json(body).send().await;
        assert!(answer.body.contains(told), "{}", answer.body);
    }
    folder.succeed(&format!("key create --account ada@example.com --name next --database-url {url}"));
    assert_eq!(query(&url, "SELECT max(id) FROM api_keys"), "3");
}

#[tokio::test]
async fn database_with_rows_is_rejected_unchanged() {
    let (folder, _) = filled().await;
    let url = PostgresServer::shared().database();
    folder.succeed(&format!("account create grace@example.com --database-url {url}"));

    let refused = folder.run(&format!("move --to {url}")).shown().replace(&url, "URL");
    expect![[r#"
        exit 1
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        error: URL: the database is not empty: it has accounts; nothing was copied
    "#]]
    .assert_eq(&refused);
    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "0");
}

#[test]
fn killed_move_leaves_nothing() {
    let folder = Folder::with_account();
    let animals = (0..200_000).map(|n| format!("{{\"name\":\"{n}\",\"categoryId\":1}}\n"));
    folder.write("animals.ndjson", animals.collect::<String>());
    folder.succeed("pets import animals.ndjson");
    let url = PostgresServer::shared().database();
    let moving = Process::start(&mut folder.command(&format!("move --to {url}")));
    let under_way =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'INSERT INTO pets%'";
    let began = std::time::Instant::now();
    while query(&url, under_way) == "0" {
        assert!(began.elapsed().as_secs() < 60, "the move does not begin");
    }
    moving.signal(Signal::KILL);
    assert_eq!(moving.end().code, None);

    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "0");
    folder.succeed(&format!("move --to {url}"));
    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "200000");
}

#[test]
fn database_url_is_rejected_as_the_source() {
    let folder = Folder::new();
    let refused = folder.run("move --to postgres://db/shop --database-url postgres://db/shop");
    expect![[r#"
        exit 1
        error: `move` copies from the embedded database: omit --database-url
    "#]]
    .assert_eq(&refused.shown());
}
