//! `key create`, `list`, `revoke` and `rotate`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use expect_test::expect;
use jiff::Timestamp;
use serde_json::Value;
use testkit::{Folder, Process, Server};

const DAY: i64 = 24 * 60 * 60 * 1000;

#[test]
fn stdout_contains_only_the_key() {
    let folder = Folder::with_account();

    let made = folder.run("key create --account ada@example.com --name first");

    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let key = made.stdout.strip_suffix('\n').expect("one line");
    let random = key.strip_prefix("pet_live_").expect("a production key");
    assert!(random.len() == 38 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
}

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
fn key_is_shown_once_and_stored_hashed() {
    let folder = Folder::with_account();
    let key = folder.key();

    assert!(!folder.succeed("key list").contains(&key) && !folder.keys().to_string().contains(&key));
    for file in std::fs::read_dir(folder.path("petstore-data")).unwrap() {
        let kept = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!kept.windows(key.len()).any(|part| part == key.as_bytes()));
    }
}

#[test]
fn json_list_has_exactly_the_documented_fields() {
    let folder = Folder::with_account();
    assert_eq!(folder.keys(), serde_json::json!([]));
    let key = folder.key();
    let keys = folder.keys();

    let fields: Vec<_> = keys[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "name", "account", "hint", "createdAt", "lastUsedAt", "expiresAt", "revokedAt"]);
    assert_eq!(keys[0]["id"], 1);
    assert_eq!(keys[0]["name"], "test");
    assert_eq!(keys[0]["account"], "ada@example.com");
    assert_eq!(keys[0]["hint"], format!("pet_live_…{}", &key[43..]));
    assert!((Timestamp::now().as_millisecond() - time(&keys[0]["createdAt"])).abs() < 60_000);
    assert_eq!(keys[0]["createdAt"].as_str().unwrap().len(), "2026-11-20T09:30:00.123Z".len());
    for unset in ["lastUsedAt", "expiresAt", "revokedAt"] {
        assert_eq!(keys[0][unset], Value::Null);
    }
}

#[test]
fn list_is_a_table() {
    let folder = Folder::with_account();
    folder.key();
    folder.succeed("key create --account ada@example.com --name ß🦊 --expires-in 90d");
    folder.succeed("key create --account ada@example.com --name \u{202e}txt");

    let table = folder.succeed("key list");
    let keys = folder.keys();

    // What differs from run to run is as wide in every run.
    let table = ["createdAt", "expiresAt", "hint"].iter().fold(table, |table, field| {
        keys.as_array()
            .unwrap()
            .iter()
            .filter_map(|key| key[field].as_str())
            .fold(table, |table, value| table.replace(value, &"#".repeat(value.chars().count())))
    });
    expect![[r#"
        ID  NAME  ACCOUNT          HINT            CREATED                   LAST USED  EXPIRES                   REVOKED
        1   test  ada@example.com  ##############  ########################  -          -                         -
        2   ß🦊    ada@example.com  ##############  ########################  -          ########################  -
        3   �txt  ada@example.com  ##############  ########################  -          -                         -
    "#]].assert_eq(&table);
}

#[test]
fn expiry_is_relative_to_now() {
    let folder = Folder::with_account();

    folder.succeed("key create --account ada@example.com --name short --expires-in 90d");

    let key = &folder.keys()[0];
    assert_eq!(time(&key["expiresAt"]) - time(&key["createdAt"]), 90 * DAY);
}

#[test]
fn revoked_key_stays_listed_with_its_first_revocation() {
    let folder = Folder::with_account();
    folder.key();

    let revoked = folder.run("key revoke 1");

    assert_eq!((revoked.code, revoked.stdout.as_str(), revoked.stderr.as_str()), (Some(0), "", ""));
    let first = time(&folder.keys()[0]["revokedAt"]);
    folder.succeed("key revoke 1");
    assert_eq!(time(&folder.keys()[0]["revokedAt"]), first);
}

#[test]
fn unknown_key_or_account_is_a_failure() {
    let folder = Folder::with_account();
    expect![[r#"
        exit 1
        error: there is no key 9
    "#]]
    .assert_eq(&folder.run("key revoke 9").shown());
    expect![[r#"
        exit 1
        error: there is no active key 9
    "#]]
    .assert_eq(&folder.run("key rotate 9").shown());
    expect![[r#"
        exit 1
        error: there is no account bob@example.com
    "#]]
    .assert_eq(&folder.run("key create --account bob@example.com --name x").shown());
}

#[test]
fn rotated_key_overlaps_its_successor_for_a_day() {
    let folder = Folder::with_account();
    folder.succeed("key create --account ada@example.com --name test --expires-in 90d");

    let rotated = folder.run("key rotate 1");

    assert_eq!((rotated.code, rotated.stderr.as_str()), (Some(0), ""));
    let keys = folder.keys();
    let (old, new) = (&keys[0], &keys[1]);
    assert_eq!(new["hint"], format!("pet_live_…{}", &rotated.stdout.trim_end()[43..]));
    assert_eq!((&new["name"], &new["account"]), (&old["name"], &old["account"]));
    assert_eq!(time(&old["expiresAt"]) - time(&new["createdAt"]), DAY, "the overlap is 24 h");
    assert_eq!(time(&new["expiresAt"]) - time(&new["createdAt"]), 90 * DAY, "the lifetime is that of the old one");
    assert_eq!(old["revokedAt"], Value::Null);
}

#[test]
fn overlap_never_extends_the_life_of_a_key() {
    let folder = Folder::with_account();
    folder.succeed("key create --account ada@example.com --name test --expires-in 1h");
    let before = folder.keys()[0]["expiresAt"].clone();

    folder.succeed("key rotate 1 --overlap 2d");

    assert_eq!(folder.keys()[0]["expiresAt"], before);
}

#[test]
fn invalid_key_cannot_be_rotated() {
    let folder = Folder::with_account();
    folder.key();
    folder.key();
    folder.succeed("key revoke 1");
    folder.succeed("key rotate 2 --overlap 0s");

    expect![[r#"
        exit 1
        error: there is no active key 1
    "#]]
    .assert_eq(&folder.run("key rotate 1").shown());
    assert_eq!(folder.run("key rotate 2").code, Some(1));
    assert_eq!(folder.keys().as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn key_commands_take_effect_in_a_running_service() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");

    let first = folder.key();
    assert_eq!(server.request("/v1/pets", &first).await.status(), 200, "a new key counts at once");

    let second = folder.succeed("key rotate 1 --overlap 0s").trim_end().to_owned();
    assert_eq!(server.request("/v1/pets", &second).await.status(), 200);
    refused_within_a_second(&server, &first).await;

    folder.succeed("key revoke 2");
    refused_within_a_second(&server, &second).await;
}

#[tokio::test]
async fn rotated_key_works_only_during_the_overlap() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");
    let kept = folder.key();
    assert_eq!(server.request("/v1/pets", &kept).await.status(), 200);
    folder.succeed("key rotate 1 --overlap 1h");
    let short = folder.succeed("key create --account ada@example.com --name short --expires-in 1s");

    std::thread::sleep(Duration::from_millis(1_100));

    assert_eq!(server.request("/v1/pets", &kept).await.status(), 200);
    assert_eq!(server.request("/v1/pets", short.trim_end()).await.status(), 401);
}

#[tokio::test]
async fn list_shows_last_use_to_the_minute() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");
    let key = folder.key();
    let before = Timestamp::now().as_millisecond();

    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);

    let asked = Instant::now();
    let used = loop {
        match &folder.keys()[0]["lastUsedAt"] {
            Value::Null => assert!(asked.elapsed() < Duration::from_secs(20), "it is not written down"),
            used => break time(used),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    // The key was first used in the minute in which it was made, unless a minute ended in between.
    let created = time(&folder.keys()[0]["createdAt"]);
    assert!(used == created || (used > created && used % 60_000 == 0), "{used} {created}");
    assert!((before - 60_000..=Timestamp::now().as_millisecond()).contains(&used));
}

#[tokio::test]
async fn stop_stores_the_last_use_of_keys() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");
    let key = folder.key();
    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);

    server.end_by(testkit::Signal::TERM);

    assert!(folder.keys()[0]["lastUsedAt"].is_string());
}

async fn refused_within_a_second(server: &Server, key: &str) {
    let changed = Instant::now();
    while server.request("/v1/pets", key).await.status() != 401 {
        assert!(changed.elapsed() < Duration::from_secs(1), "the key still works");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Milliseconds since 1970.
fn time(shown: &Value) -> i64 {
    shown.as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond()
}
