//! `key create`, `list`, `revoke` and `rotate`.

use std::process::Stdio;

use expect_test::expect;
use jiff::Timestamp;
use serde_json::Value;
use testkit::{Folder, Process, Signal, TIMEOUT, within};

const DAY: i64 = 24 * 60 * 60 * 1000;

#[test]
fn key_that_cannot_be_printed_is_a_failure() {
    let folder = Folder::with_account();
    let closed = || std::io::pipe().unwrap().1;
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let create = "key create --account ada@example.com --name test";
    for (line, stdout, id, why) in [
        (create, Stdio::from(closed()), 1, "Broken pipe (os error 32)"),
        (create, full().into(), 2, "No space left on device (os error 28)"),
        ("key rotate 1 --overlap 0s", closed().into(), 3, "Broken pipe (os error 32)"),
    ] {
        let ended = Process::start_with_stdout(&mut folder.command(line), stdout).end();
        let replace = format!("replace it with `petstore key rotate {id} --overlap 0s`");
        let told = format!("key {id} was created, but cannot be shown: {why}; {replace}");
        assert_eq!((ended.code, ended.stderr), (Some(1), format!("error: {told}\n")), "{line}");
    }
}

#[test]
fn json_list_has_exactly_the_documented_fields() {
    let folder = Folder::with_account();
    assert!(folder.json("key list").is_empty());
    let key = folder.key();
    folder.succeed("key create --account ada@example.com --name reader --read-only");

    let keys = folder.json("key list");

    let created_at = keys[0]["createdAt"].as_str().unwrap();
    assert!((Timestamp::now().as_millisecond() - time(&keys[0]["createdAt"])).abs() < 60_000);
    let shown = keys[0].to_string().replace(created_at, "2026-11-20T09:30:00.123Z").replace(&key[43..], "LAST");
    assert_eq!(created_at.len(), "2026-11-20T09:30:00.123Z".len());
    expect![[r#"{"id":1,"name":"test","account":"ada@example.com","hint":"pet_live_…LAST","createdAt":"2026-11-20T09:30:00.123Z","lastUsedAt":null,"expiresAt":null,"revokedAt":null,"readOnly":false,"prefer":null}"#]]
        .assert_eq(&shown);
    assert_eq!(keys[1]["readOnly"], true);
}

#[test]
fn list_is_a_table() {
    let folder = Folder::with_account();
    folder.key();
    folder.succeed("key create --account ada@example.com --name ß🦊 --expires-in 90d");
    folder.succeed("key create --account ada@example.com --name \u{202e}txt");

    let table = folder.table("key list", &["createdAt", "expiresAt", "hint"]);

    expect![[r#"
        ID  NAME  ACCOUNT          HINT            CREATED                   LAST USED  EXPIRES                   REVOKED  ACCESS  PREFER
        1   test  ada@example.com  ##############  ########################  -          -                         -        write   -
        2   ß🦊    ada@example.com  ##############  ########################  -          ########################  -        write   -
        3   �txt  ada@example.com  ##############  ########################  -          -                         -        write   -
    "#]].assert_eq(&table);
}

#[tokio::test]
async fn key_with_preferences_fails_as_they_say() {
    let folder = Folder::new();
    folder.succeed("account create ada@example.com --deployment staging");
    let create = "key create --account ada@example.com --name failing --prefer";

    let key = folder.succeed(&format!("{create} every=2,CODE=503")).trim_end().to_owned();
    assert_eq!(folder.json("key list")[0]["prefer"], "every=2, code=503");
    assert!(folder.succeed("key list").trim_end().ends_with("  every=2, code=503"));
    let server = folder.serve("serve");
    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);
    assert_eq!(server.request("/v1/pets", &key).await.status(), 503);

    let successor = folder.succeed("key rotate 1").trim_end().to_owned();
    assert_eq!(server.request("/v1/pets", &successor).await.status(), 200);
    assert_eq!(server.request("/v1/pets", &successor).await.status(), 503);

    // `tests/api/failing_keys.rs` has all errors.
    for (prefer, why) in [
        ("wait=5", "has the unknown preference wait"),
        ("code=418", "has code=418, which is no documented error"),
        ("code=409,operation=listPets", "has code=409, which is no documented error of listPets"),
        (&*format!("code=503,rate=0.{}1", "0".repeat(250)), "is longer than 255 characters"),
    ] {
        let usage = folder.run(&format!("{create} {prefer}")).usage();
        assert!(usage.starts_with("exit 2\n") && usage.contains(why), "{usage}");
    }
    assert_eq!(folder.json("key list").len(), 2, "no key was created");
}

#[test]
fn impossible_key_is_a_failure() {
    let folder = Folder::with_account();
    for (line, why) in [
        ("key revoke 9", "there is no key 9"),
        ("key rotate 9", "there is no active key 9"),
        ("key create --account bob@example.com --name x", "there is no account bob@example.com"),
        (
            "key create --account ada@example.com --name x --prefer code=503",
            "--prefer is only possible on staging: production simulates no failures",
        ),
    ] {
        folder.fails(line, why);
    }
}

#[test]
fn last_use_is_stored_when_the_service_stops() {
    let (folder, key) = Folder::with_key();
    // A stop waits for a slow disk for two seconds.
    within(TIMEOUT, "storing the last use", || {
        let server = folder.serve("serve");
        assert_eq!(server.get("/v1/pets", &key).status(), 200);
        server.end_by(Signal::TERM);
        folder.json("key list")[0]["lastUsedAt"].is_string()
    });
}

#[test]
fn rotated_key_overlaps_its_successor_for_a_day() {
    let folder = Folder::with_account();
    folder.succeed("key create --account ada@example.com --name test --expires-in 90d");

    let rotated = folder.run("key rotate 1");

    assert_eq!((rotated.code, rotated.stderr.as_str()), (Some(0), ""));
    let keys = folder.json("key list");
    let (old, new) = (&keys[0], &keys[1]);
    assert_eq!(new["hint"], format!("pet_live_…{}", &rotated.stdout.trim_end()[43..]));
    assert_eq!((&new["name"], &new["account"]), (&old["name"], &old["account"]));
    assert_eq!(time(&old["expiresAt"]) - time(&new["createdAt"]), DAY, "the overlap is 24 h");
    assert_eq!(time(&new["expiresAt"]) - time(&new["createdAt"]), 90 * DAY, "the lifetime is that of the old one");
    assert_eq!(old["revokedAt"], Value::Null);
}

/// Milliseconds since 1970.
fn time(shown: &Value) -> i64 {
    shown.as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond()
}
