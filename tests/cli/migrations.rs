//! `migrate`, and databases of other versions.

use expect_test::expect;
use testkit::{Folder, Process};

#[test]
fn migrate_creates_a_database_and_status_lists_it() {
    let folder = Folder::new();

    let migrated = folder.run("migrate");

    assert_eq!((migrated.code, migrated.stdout.as_str(), migrated.stderr.as_str()), (Some(0), "", ""));
    let status = folder.succeed("migrate status");
    assert!(status.starts_with("applied  V1__store\n"), "{status}");
    assert!(status.lines().all(|line| line.starts_with("applied  V")), "{status}");
    let json = folder.list("migrate status");
    assert_eq!(json[0], serde_json::json!({"name": "V1__store", "applied": true}));
    assert_eq!(json.len(), status.lines().count());
    folder.succeed("migrate");
    assert_eq!(folder.succeed("migrate status"), status, "nothing is pending");
}

#[test]
fn status_of_an_empty_database_is_pending_and_changes_nothing() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("petstore-data")).unwrap();
    folder.write("petstore-data/petstore.db", "");

    let status = folder.succeed("migrate status");

    assert!(status.lines().all(|line| line.starts_with("pending  V")) && !status.is_empty(), "{status}");
    assert_eq!(folder.read("petstore-data/petstore.db"), "");
}

#[test]
fn newer_database_is_rejected_unchanged_by_every_command() {
    let folder = Folder::with_account();
    let file = folder.path("petstore-data/petstore.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.execute("INSERT INTO schema_history (version, name) VALUES (9999, 'later')", []).unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();

    let refused = folder.run("migrate");
    let text = refused.shown().replace(&newest(&folder), "N:");
    expect![[r#"
        exit 1
        error: the database is at schema version 9999 and this program knows up to N: use a newer petstore
    "#]]
    .assert_eq(&text);
    for line in ["key list", "pets export", "account create b@example.com"] {
        assert_eq!(folder.run(line).shown(), refused.shown(), "{line}");
    }
    for line in ["serve --listen 127.0.0.1:0", "quickstart"] {
        assert_eq!(folder.run(line).shown_log(), refused.shown().replace("error: ", "ERROR "), "{line}");
    }
    assert!(std::fs::read(&file).unwrap() == before);
}

/// The newest version that this program knows.
fn newest(folder: &Folder) -> String {
    format!("{}:", folder.succeed("migrate status").lines().count())
}

#[test]
fn processes_may_create_the_same_database_concurrently() {
    let folder = Folder::new();
    let migrations: Vec<_> = (0..8).map(|_| Process::start(&mut folder.command("migrate"))).collect();
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..2).map(|_| scope.spawn(|| folder.serve("serve"))).collect();
        for server in servers {
            assert_eq!(server.join().unwrap().listening["deployment"], "production");
        }
    });
    for migration in migrations {
        let ended = migration.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    }
    assert!(folder.succeed("migrate status").starts_with("applied"));
}
