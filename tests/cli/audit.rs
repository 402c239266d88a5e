//! `audit`, and the rows that commands leave.

use expect_test::expect;
use serde_json::Value;
use testkit::console::{PASSWORD, form};
use testkit::{Database, Folder, PostgresServer, TIMEOUT, fields, within};

/// All rows, oldest first: `action actor: subject`.
fn rows(database: &Database) -> String {
    let row = |row: &Value| {
        let [action, actor, subject] = ["action", "actor", "subject"].map(|name| row[name].as_str().unwrap());
        format!("{action} {}: {subject}\n", actor.replace(&user(), ""))
    };
    database.json("audit").iter().rev().map(row).collect()
}

/// Returns the end of a command's actor.
fn user() -> String {
    format!(" (uid {})", rustix::process::getuid().as_raw())
}

#[test]
fn actor_of_a_command_is_the_user_who_called_it() {
    let folder = Folder::new();
    let actor = |sudo_user: &str| {
        let mut create = folder.command(&format!("account create {}@example.com", sudo_user.len()));
        assert!(create.env("SUDO_USER", sudo_user).status().unwrap().success());
        folder.json("audit")[0]["actor"].as_str().unwrap().to_owned()
    };
    assert_eq!(actor("grace"), format!("command line{}", user().replace(')', ", sudo by grace)")));
    assert_eq!([actor(""), actor("a b c d")], [(); 2].map(|()| format!("command line{}", user())));
}

#[test]
fn audit_is_filtered() {
    let folder = Folder::with_account();
    folder.key();
    folder.succeed("key rotate 1");
    folder.succeed("account create ben@example.com");
    folder.succeed("key create --account ben@example.com --name ada@example.com");
    folder.succeed("account set-role ada@example.com staff");
    folder.database().sql("UPDATE audit SET created_at = created_at - 2 * 86400000 WHERE id < 3");
    let ids = |filter: &str| {
        let rows = folder.json(&format!("audit {filter}"));
        rows.iter().map(|row| row["id"].to_string()).collect::<Vec<_>>().join(" ")
    };
    for (filter, selected) in [
        ("", "6 5 4 3 2 1"),
        ("--key 1", "3 2"),
        ("--key 2", "3"),
        ("--action key", "5 3 2"),
        ("--action key.rotate", "3"),
        ("--account BEN@example.com", "5 4"),
        ("--account ada@example.com", "6 3 2 1"),
        ("--subject (staff)", "6"),
        ("--until 1d", "2 1"),
        ("--until 1d --action account", "1"),
        ("--since 1d --account ben@example.com --key 3", "5"),
    ] {
        assert_eq!(ids(filter), selected, "{filter}");
    }
    let refused = folder.run("audit --action orders").usage();
    assert!(refused.starts_with("exit 2\nerror: invalid value 'orders' for '--action <ACTION>'"), "{refused}");
    assert!(refused.contains(" key, key.create, ") && refused.contains("a similar value exists: 'order'"), "{refused}");
    folder.fails("audit --until 7d", "--until must be less than --since: both go back from now");
}

#[test]
fn each_command_leaves_one_row_without_a_secret() {
    let database = Database::temporary();
    let [_, key, successor, _, password, ..] = [
        "account create ada@example.com --role staff --deployment staging",
        "key create --account ada@example.com --name test",
        "key rotate 1",
        "key revoke 1",
        "account set-password ada@example.com",
        "account set-role ada@example.com customer",
        "reset --yes",
        "account delete ada@example.com --yes",
    ]
    .map(|line| database.run(line).trim().to_owned());
    for failing in ["key revoke 9", "key rotate 1", "account delete ada@example.com", "reset"] {
        database.rejects(failing);
    }

    expect![[r#"
        account.create command line: ada@example.com (staff)
        key.create command line: key 1 (pet_test_…KEY1) of ada@example.com: test
        key.rotate command line: key 1 (pet_test_…KEY1) to key 2 (pet_test_…KEY2) of ada@example.com: test
        key.revoke command line: key 1 (pet_test_…KEY1) of ada@example.com: test
        account.set_password command line: ada@example.com
        account.set_role command line: ada@example.com (customer)
        store.reset command line: staging
        key.revoke command line: key 2 (pet_test_…KEY2) of ada@example.com: test
        account.delete command line: ada@example.com
    "#]]
    .assert_eq(&rows(&database).replace(&key[43..], "KEY1").replace(&successor[43..], "KEY2"));
    for row in database.json("audit") {
        assert_eq!(fields(&row), ["id", "createdAt", "action", "actor", "subject", "clientAddress", "requestId"]);
        assert!(row["clientAddress"].is_null() && row["requestId"].is_null(), "{row}");
        assert!(row["createdAt"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        assert!([&key, &successor, &password].iter().all(|secret| !row.to_string().contains(&**secret)), "{row}");
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
        ID  TIME                      ACTION          ACTOR                 CLIENT  REQUEST  SUBJECT
        3   ########################  account.create  command line (uid 0)  -       -        ben@example.com (customer)
        2   ########################  key.create      command line (uid 0)  -       -        key 1 (pet_live_…####) of ada@example.com: test
    "#]].assert_eq(&masked("audit").replace(hint, "…####").replace(&user(), " (uid 0)"));
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

    expect![[r#"
        account.create command line: ada@example.com (customer)
        store.restore command line: there.db
        account.create command line: ben@example.com (customer)
        store.move command line: petstore-data
        account.create command line: eve@example.com (customer)
    "#]]
    .assert_eq(&rows(&database));
    assert_eq!(folder.json("audit").len(), 3, "the embedded database is not changed");
}

#[test]
fn service_deletes_rows_after_the_retention_time() {
    for (flags, milliseconds) in [("", 366 * 86_400_000_i64), ("--audit-retention 1h", 3_600_000)] {
        let database = Database::temporary();
        database.run("account create ada@example.com");
        database.sql(&format!("UPDATE audit SET created_at = created_at - {milliseconds}"));
        database.run("account create ben@example.com");
        let _server = database.serve_with(flags);
        let left = "account.create command line: ben@example.com (customer)\n";
        within(TIMEOUT, "deleting the old row", || rows(&database) == left);
    }
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
