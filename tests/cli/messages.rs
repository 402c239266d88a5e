//! `messages list` and `export`.

use expect_test::expect;
use serde_json::Value;
use testkit::{Folder, Signal, fields};

/// Two accounts, and the messages of each.
fn filled() -> Folder {
    let folder = Folder::new();
    let keys = ["ada@example.com", "grace@example.com"].map(|email| folder.database().customer(email));
    let server = folder.serve("serve");
    for (key, text) in keys.iter().zip(["Hello", r"Good\nmorning, \u202eall of you who read this far"]) {
        assert_eq!(server.send_message(key, text).status(), 202);
    }
    server.end_by(Signal::TERM);
    folder.database().sql("UPDATE messages SET sent_at = 1795167000123 WHERE account_id = 1");
    folder
}

#[test]
fn list_is_a_table_or_json_newest_first() {
    let folder = filled();
    let listed = folder.json("messages list");
    assert_eq!(fields(&listed[0]), ["id", "message", "status", "createdAt", "account", "sentAt"]);
    assert_eq!((&listed[0]["account"], &listed[0]["sentAt"]), (&"grace@example.com".into(), &Value::Null));
    assert_eq!(listed[0]["status"], "queued");
    assert_eq!((&listed[1]["message"], &listed[1]["status"]), (&"Hello".into(), &"sent".into()));
    assert_eq!(listed[1]["sentAt"], "2026-11-20T09:30:00.123Z");

    expect![[r#"
        ID                                    ACCOUNT            CREATED                   SENT                      MESSAGE
        ####################################  grace@example.com  ########################  -                         Good morning, �all of you who read this …
        ####################################  ada@example.com    ########################  2026-11-20T09:30:00.123Z  Hello
    "#]]
    .assert_eq(&folder.table("messages list", &["id", "createdAt"]));
}

#[test]
fn account_and_state_filter_messages() {
    let folder = filled();
    let accounts = |flags: &str| -> Vec<String> {
        let exported = folder.succeed(&format!("messages export {flags}"));
        let lines = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["account"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(accounts(""), ["ada@example.com", "grace@example.com"]);
    assert_eq!(accounts("--state waiting"), ["grace@example.com"]);
    assert_eq!(accounts("--state sent"), ["ada@example.com"]);
    assert_eq!(accounts("--account ada@example.com"), ["ada@example.com"]);
    assert_eq!(accounts("--account ada@example.com --state waiting"), Vec::<String>::new());
    let more = "only the newest 1 message: a higher --limit lists more\n";
    for (limit, listed, told) in [(1, 2, more), (2, 3, "")] {
        let ended = folder.run(&format!("messages list --limit {limit}"));
        assert_eq!((ended.stdout.lines().count(), &*ended.stderr), (listed, told));
    }
    let ended = folder.run("messages list --limit 1 --json");
    assert_eq!((ended.stdout.matches("sentAt").count(), &*ended.stderr), (1, more));
    assert_eq!(folder.run("messages export there.ndjson").shown(), "exit 0\nexported 2 messages\n");
    assert_eq!(folder.read("there.ndjson"), folder.succeed("messages export"));
    folder.fails("messages list --account eve@example.com", "there is no account eve@example.com");
}
