//! `messages list` and `export`.

use expect_test::expect;
use serde_json::Value;
use testkit::{Folder, Request, Signal, fields};

/// Two accounts, and the messages of each.
async fn filled() -> Folder {
    let folder = Folder::with_account();
    folder.succeed("account create grace@example.com");
    let (ada, grace) = (folder.key(), folder.succeed("key create --account grace@example.com --name test"));
    let server = folder.serve("serve");
    for (key, text) in [(&*ada, "Hello"), (grace.trim_end(), "Good\nmorning, \u{202e}all of you who read this far")] {
        let body = serde_json::json!({ "message": text }).to_string();
        let sent = Request::new(server.address("messages"), "POST", "/v1/messages").key(key).json(body).send().await;
        assert_eq!(sent.status(), 202);
    }
    server.end_by(Signal::TERM);
    let sent = "UPDATE messages SET sent_at = 1795167000123 WHERE account_id = 1";
    folder.database().sql(sent);
    folder
}

#[tokio::test]
async fn list_is_a_table_or_json_newest_first() {
    let folder = filled().await;
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

#[tokio::test]
async fn account_and_state_filter_messages() {
    let folder = filled().await;
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
    assert_eq!(folder.succeed("messages list --limit 1").lines().count(), 2);
    folder.fails("messages list --account eve@example.com", "there is no account eve@example.com");
}

#[tokio::test]
async fn export_to_a_file_reports_the_count() {
    let folder = filled().await;
    assert_eq!(folder.run("messages export there.ndjson").shown(), "exit 0\nexported 2 messages\n");
    assert_eq!(folder.read("there.ndjson").lines().count(), 2);
}
