//! `migrate`, and databases of other versions.

use testkit::Folder;

#[test]
fn migrate_creates_a_database_and_status_lists_it() {
    let folder = Folder::new();

    let migrated = folder.run("migrate");

    assert_eq!((migrated.code, migrated.stdout.as_str(), migrated.stderr.as_str()), (Some(0), "", ""));
    let status = folder.succeed("migrate status");
    assert!(status.starts_with("applied  V1__store\n"), "{status}");
    assert!(status.lines().all(|line| line.starts_with("applied  V")), "{status}");
    let json = folder.json("migrate status");
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
    let newest = folder.succeed("migrate status").lines().count();
    folder.database().sql("INSERT INTO schema_history (version, name) VALUES (9999, 'later')");
    let before = std::fs::read(&file).unwrap();

    assert!(folder.succeed("migrate status").ends_with("\napplied  V9999__later\n"));
    let known = format!("this program knows up to {newest}: use a newer petstore");
    let why = format!("the database is at schema version 9999 and {known}");
    for line in ["migrate", "config check", "key list", "pets export", "account create b@example.com"] {
        folder.fails(line, &why);
    }
    for line in ["serve --listen 127.0.0.1:0", "quickstart"] {
        folder.fails_to_serve(line, &why);
    }
    assert!(std::fs::read(&file).unwrap() == before);
}
