//! `petstore move`

use expect_test::expect;
use testkit::postgres::query;
use testkit::{Folder, PostgresServer, Request, Response, Server, Signal};

/// A folder with an account, keys, animals, an order and a message, and one of the keys.
fn filled() -> (Folder, String) {
    let (folder, key) = Folder::with_key();
    folder.key();
    folder.succeed("key revoke 2");
    folder.succeed("account create eve@example.com");
    folder.succeed("key create --account eve@example.com --name erased");
    folder.succeed("account erase eve@example.com --yes");
    folder.import((0..1500).map(|n| format!("{{\"name\":\"ß🦊{n}\",\"categoryId\":{}}}\n", i64::MIN + n)));
    let server = folder.serve("serve");
    let sent = send_keyed(&server, &key);
    assert_eq!((sent.status(), sent.is_replayed()), (202, false));
    assert_eq!(place_order(&server, &key, 7).status(), 201);
    server.end_by(Signal::TERM);
    (folder, key)
}

fn send_keyed(server: &Server, key: &str) -> Response {
    let request = Request::new(server.messages(), "POST", "/v1/messages").key(key).header("idempotency-key", "hello");
    request.json(r#"{"message":"Hello\n🦊\r\t\\"}"#).send_blocking()
}

fn place_order(server: &Server, key: &str, pet: i64) -> Response {
    let request = Request::new(server.store(), "POST", "/v1/store/orders").key(key);
    request.json(format!(r#"{{"petId":{pet}}}"#)).send_blocking()
}

#[test]
fn everything_is_copied_and_stays_usable() {
    let (folder, key) = filled();
    let url = PostgresServer::shared().database();

    let moved = folder.run(&format!("move --database-url {url}")).shown().replace(&url, "URL");
    // A URL without a password is displayed in full.
    expect![[r#"
        exit 0
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        moved 2 accounts, 2 keys, 1,500 animals, 1 order, 1 message, 0 sessions, 1 stored response, 8 audit rows to URL
        the store in petstore-data is unchanged; move it away, so that it is not served by mistake
    "#]]
    .assert_eq(&moved);

    let here = folder.succeed("pets export");
    assert_eq!(here, folder.succeed(&format!("pets export --database-url {url}")));
    assert_eq!(folder.succeed("key list --json"), folder.succeed(&format!("key list --json --database-url {url}")));
    let message = "SELECT message, account_id, substr(replace(id::text, '-', ''), 13, 1) FROM messages";
    assert_eq!(query(&url, message), "Hello\n🦊\r\t\\|1|7");

    assert_eq!(query(&url, "SELECT id, account_id, pet_id, status FROM orders"), "1|1|7|0");

    let id = "SELECT value FROM meta WHERE key = 'store_id'";
    assert_eq!(query(&url, id), folder.database().sql(id));

    let server = folder.serve(&format!("serve --database-url {url}"));
    assert_eq!(server.create_pet(&key, "Rex").json()["id"], 1501);
    let again = send_keyed(&server, &key);
    assert_eq!((again.status(), again.is_replayed()), (202, true));
    assert_eq!(place_order(&server, &key, 7).code(), "conflict");
    let placed = place_order(&server, &key, 8).json();
    assert_eq!((&placed["id"], &placed["petId"]), (&2.into(), &8.into()));
    folder.succeed(&format!("key create --account ada@example.com --name next --database-url {url}"));
    assert_eq!(query(&url, "SELECT max(id) FROM api_keys"), "4", "3 is that of an erased key");
}

#[test]
fn database_with_rows_is_rejected_unchanged() {
    let (folder, _) = filled();
    let url = PostgresServer::shared().database();
    folder.succeed(&format!("account create grace@example.com --database-url {url}"));
    let _server = folder.serve("serve");

    let refused = folder.run(&format!("move --database-url {url}")).shown().replace(&url, "URL");
    expect![[r#"
        exit 1
        warning: another process has the embedded database open: its later writes are not copied
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        error: URL: the database is not empty: it has accounts; nothing was copied
    "#]]
    .assert_eq(&refused);
    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "0");
    folder.fails("move", "set --database-url to the PostgreSQL database to copy to");
}

#[test]
fn move_of_a_damaged_database_leaves_nothing() {
    let (folder, key) = filled();
    let server = folder.serve("serve");
    assert_eq!(server.send_message(&key, &"x".repeat(9_000)).status(), 202);
    server.end_by(Signal::TERM);
    // A page that only the copy of the row itself reads.
    let file = folder.path("petstore-data/petstore.db");
    let mut pages = std::fs::read(&file).unwrap();
    let page = pages.chunks_mut(4_096).find(|page| page[4..].iter().all(|byte| *byte == b'x')).unwrap();
    page.fill(0);
    std::fs::write(&file, pages).unwrap();
    let url = PostgresServer::shared().database();

    let moved = folder.run(&format!("move --database-url {url}")).shown();

    assert!(moved.contains("exit 1") && moved.contains("malformed"), "{moved}");
    assert_eq!(query(&url, "SELECT count(*) FROM accounts"), "0");
}
