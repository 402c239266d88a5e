//! `audit`, and the rows that commands leave.

use expect_test::expect;
use serde_json::Value;
use testkit::console::{PASSWORD, form};
use testkit::{Database, Folder, PostgresServer, TIMEOUT, fields, within};

/// All rows, oldest first.
fn rows(database: &Database) -> Vec<Value> {
    database.json("audit").into_iter().rev().collect()
}

/// `action actor: subject`
fn shown(rows: &[Value]) -> Vec<String> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let row = |row| format!("{} {}: {}", text(row, "action"), text(row, "actor"), text(row, "subject"));
    rows.iter().map(row).collect()
}

#[test]
fn each_command_leaves_one_row_without_a_secret() {
    for database in [Database::temporary(), Database::postgres()] {
        database.run("account create ada@example.com --role staff --deployment staging");
        let key = database.another_key();
        let successor = database.run("key rotate 1");
        database.run("key revoke 1");
        let password = database.run("account set-password ada@example.com");
        database.run("account set-role ada@example.com customer");
        database.run("reset --yes");
        database.run("account delete ada@example.com");
        for failing in ["key revoke 9", "key rotate 1", "account delete ada@example.com", "reset"] {
            database.rejects(failing);
        }

        let rows = rows(&database);
        let hint = |key: &str| key.trim()[43..].to_owned();
        let (first, second) = (hint(&key), hint(&successor));
        let expected = [
            "account.create command line: ada@example.com (staff)".to_owned(),
            format!("key.create command line: key 1 (pet_test_…{first}) of ada@example.com: test"),
            format!(
                "key.rotate command line: key 1 (pet_test_…{first}) to key 2 (pet_test_…{second}) of ada@example.com: test"
            ),
            format!("key.revoke command line: key 1 (pet_test_…{first}) of ada@example.com: test"),
            "account.set_password command line: ada@example.com".to_owned(),
            "account.set_role command line: ada@example.com (customer)".to_owned(),
            "store.reset command line: staging".to_owned(),
            format!("key.revoke command line: key 2 (pet_test_…{second}) of ada@example.com: test"),
            "account.delete command line: ada@example.com".to_owned(),
        ];
        assert_eq!(shown(&rows), expected);
        assert_eq!(fields(&rows[0]), ["id", "createdAt", "action", "actor", "subject", "clientAddress", "requestId"]);
        for row in &rows {
            assert!(row["clientAddress"].is_null() && row["requestId"].is_null(), "{row}");
            assert!(row["createdAt"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
            assert!(
                [&key, &successor, &password].iter().all(|secret| !row.to_string().contains(secret.trim())),
                "{row}"
            );
        }
    }
}

#[test]
fn audit_shows_the_time_asked_for_as_a_table() {
    let folder = Folder::with_account();
    folder.key();
    folder.succeed("account create ben@example.com");
    folder.database().sql("UPDATE audit SET created_at = created_at - 8 * 86400000 WHERE id = 1");

    let masked = |line: &str| folder.table(line, &["createdAt"]);

    let hint = &folder.json("key list")[0]["hint"].as_str().unwrap().replace("pet_live_", "");
    expect![[r#"
        ID  TIME                      ACTION          ACTOR         CLIENT  REQUEST  SUBJECT
        3   ########################  account.create  command line  -       -        ben@example.com (customer)
        2   ########################  key.create      command line  -       -        key 1 (pet_live_…####) of ada@example.com: test
    "#]].assert_eq(&masked("audit").replace(hint, "…####"));
    assert_eq!(masked("audit --since 9d").lines().count(), 4);
    assert_eq!(masked("audit --since 0s").lines().count(), 1);
}

#[test]
fn restore_and_move_keep_the_rows_and_add_their_own() {
    let folder = Folder::with_account();
    folder.succeed("backup there.db");
    folder.succeed("account create gone@example.com");
    folder.succeed("restore there.db --force");
    folder.succeed("account create ben@example.com");
    let url = PostgresServer::shared().database();
    folder.succeed(&format!("move --database-url {url}"));
    let database = Database::url(&url);
    database.run("account create eve@example.com");

    let expected = [
        "account.create command line: ada@example.com (customer)",
        "store.restore command line: there.db",
        "account.create command line: ben@example.com (customer)",
        "store.move command line: petstore-data",
        "account.create command line: eve@example.com (customer)",
    ];
    assert_eq!(shown(&rows(&database)), expected);
    assert_eq!(folder.json("audit").len(), 3, "the embedded database is not changed");
}

#[test]
fn service_deletes_rows_after_the_retention_time() {
    for database in [Database::temporary(), Database::postgres()] {
        database.run("account create ada@example.com");
        let a_year_and_a_day = 366 * 86_400_000_i64;
        database.sql(&format!("UPDATE audit SET created_at = created_at - {a_year_and_a_day}"));
        database.run("account create ben@example.com");
        let count = || rows_in(&database);
        assert_eq!(count(), 2);
        let _server = database.serve();
        within(TIMEOUT, "deleting the old row", || count() == 1);
        assert_eq!(shown(&rows(&database)), ["account.create command line: ben@example.com (customer)"]);
    }
    let database = Database::temporary();
    database.run("account create ada@example.com");
    database.sql("UPDATE audit SET created_at = created_at - 60000");
    let _server = database.serve_with("--audit-retention 1m");
    within(TIMEOUT, "deleting the row", || rows_in(&database) == 0);
}

fn rows_in(database: &Database) -> usize {
    database.sql("SELECT count(*) FROM audit").parse().unwrap()
}

#[tokio::test]
async fn failed_sign_in_is_logged_and_names_only_accounts() {
    let folder = Folder::new();
    folder.run_with("account create ada@example.com --password-stdin", PASSWORD);
    let server = folder.serve("serve --log-format json");
    for (email, account) in [("ada@example.com", "1"), ("secret@example.com", "unknown")] {
        let fields = [("email", email), ("password", "wrong password")];
        let answer = form(server.store(), "/sign-in", &fields).send().await;
        let line = server.logged("wrong password");
        assert_eq!((answer.status(), &line["account"]), (422, &account.into()));
        assert_eq!(line["request_id"].as_str(), answer.header("x-request-id"));
        assert!(!line.to_string().contains('@'), "{line}");
    }
    assert_eq!(folder.succeed("audit --json").matches("action").count(), 1);
}
