//! Commands in a container: nothing but the data directory is writable, and there is no `/tmp`.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{Database, Endpoint, FREE_PORTS, Folder, Process, Request, Server, TIMEOUT, petstore, until, within};

const REX: &str = r#"{"name":"Rex","categoryId":1}"#;

/// Returns a command whose data directory is the folder `data`.
fn contained(folder: &Folder, line: &str) -> Command {
    let mut bwrap = folder.program("bwrap");
    bwrap.args(["--tmpfs", "/", "--proc", "/proc", "--dev", "/dev", "--ro-bind", petstore(), "/petstore"]);
    // The program of the tests is not static.
    bwrap.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]);
    std::fs::create_dir_all(folder.path("data")).unwrap();
    bwrap.args(["--bind", "data", "/data", "--remount-ro", "/", "--chdir", "/", "--die-with-parent"]);
    bwrap.args(["--clearenv", "--setenv", "PETSTORE_DATA_DIR", "/data", "--setenv", "TMPDIR", "/data"]);
    bwrap.args(["--setenv", "PETSTORE_LISTEN", "0.0.0.0:8080", "--", "/petstore"]);
    bwrap.args(line.split_whitespace());
    bwrap
}

/// Runs a command with `input` on stdin, and returns what it reports.
fn report(mut command: Command, input: &str) -> String {
    let mut process = Process::start(command.stdin(Stdio::piped()));
    process.take_input().write_all(input.as_bytes()).unwrap();
    process.end().shown()
}

#[test]
fn animals_are_read_from_stdin() {
    let folder = Folder::new();
    let run = |line: &str| report(contained(&folder, line), &format!("{REX}\n{REX}\n"));

    let imported = run("pets import - --deployment staging");
    let reset = run("reset --yes --pets -");
    let on_postgresql = run(&format!("pets import - --database-url {}", testkit::postgres::database()));

    assert!(imported.ends_with("imported 2 animals\n"), "{imported}");
    assert!(reset.ends_with("added 2 animals\n"), "{reset}");
    assert!(on_postgresql.ends_with("imported 2 animals\n"), "{on_postgresql}");
    let left = folder.names("data");
    assert!(left.iter().all(|name| name.starts_with("petstore")), "{left:?}");
}

#[tokio::test]
async fn ephemeral_store_has_the_keys_and_addresses_of_its_command() {
    let folder = Folder::new();
    let key = folder.succeed("key new").trim().to_owned();
    let line = format!(
        "ephemeral --listen 0.0.0.0:0 --messages-listen 0.0.0.0:0 --ops-listen 0.0.0.0:0 --key {key} \
         --base-url http://petstore:8080/v1 --messages-base-url http://petstore:8081/v1 --log-level info"
    );
    let mut store = Process::start(contained(&folder, &line).stdin(Stdio::null()));
    let ready: Value = serde_json::from_str(&store.next_line().unwrap()).unwrap();
    assert_eq!((&ready["storeUrl"], &ready["key"]), (&"http://petstore:8080/v1".into(), &Value::from(key)));
    let ready_at = ready["opsUrl"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    until(async || Request::new(ready_at, "GET", "/readyz").send().await.status() == 200).await;
    store.kill();
}

/// The messages are more than SQLite sorts in memory while it creates the relay's index.
#[test]
fn many_messages_are_listed_and_relayed() {
    let folder = Folder::new();
    assert_eq!(Process::start(&mut contained(&folder, "account create ada@example.com")).end().code, Some(0));
    let database = Database::folder(&folder.path("data"));
    for (number, id, text) in [(300_000, "%016d", "%d"), (1_000, "a%015d", "%010000d")] {
        database.sql(&format!(
            "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {number})
             INSERT INTO messages SELECT 1, CAST(printf('{id}', i) AS BLOB), printf('{text}', i), 0, NULL FROM n"
        ));
    }
    let endpoint = Endpoint::acknowledging();
    std::fs::write(folder.path("data/secrets"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();

    let listed = Process::start(&mut contained(&folder, "messages list --json --limit 1000")).end();
    let flags = format!("serve {FREE_PORTS} --relay {} --relay-secret-file /data/secrets", endpoint.url());
    let server = Server::start(contained(&folder, &flags));

    let more = "only the newest 1,000 messages: a higher --limit lists more\n";
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), more));
    within(TIMEOUT, "a delivery", || !endpoint.deliveries().is_empty());
    let left = folder.names("data");
    assert!(left.iter().all(|name| name.starts_with("petstore") || name == "secrets"), "{left:?}");
    drop((server, endpoint));
}
