//! `migrate`, and databases of other versions.

use testkit::{Database, Folder};

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

#[test]
fn database_of_another_build_is_refused_by_name() {
    let folder = Folder::with_account();
    let build = folder.succeed("--version").trim().replace("petstore ", "");
    let refuses = |line: &str, made_by: &str, difference: &str| {
        let ended = folder.run(line);
        assert_eq!(ended.code, Some(1), "{line}: {ended:?}");
        let why = format!("the database is of another build of petstore{made_by}: its {difference}");
        let this = format!("; this program is {build}: use the petstore that made the database, or restore a backup");
        assert!(ended.stderr.contains(&why) && ended.stderr.contains(&this), "{line}: {}", ended.stderr);
    };
    let database = folder.database();
    assert!(database.sql("SELECT value FROM meta WHERE key = 'V1'").ends_with(&build));
    database.sql("DELETE FROM meta WHERE key LIKE 'V%'");
    database.sql("CREATE INDEX mine ON pets (name)");
    folder.succeed("key list");

    database.sql("ALTER TABLE audit RENAME COLUMN request_id TO request");
    let before = std::fs::read(folder.path("petstore-data/petstore.db")).unwrap();
    for line in ["migrate", "config check", "key list", "pets export", "serve --listen 127.0.0.1:0"] {
        refuses(line, "", "table audit of audit is not as in schema version ");
    }
    assert!(std::fs::read(folder.path("petstore-data/petstore.db")).unwrap() == before);
    database.sql("INSERT INTO meta (key, value) VALUES ('V1', '4950cc4f 0.0.9 (abc)')");
    refuses("key list", ", 0.0.9 (abc)", "table audit of audit is not as in schema version ");
    database.sql("DELETE FROM meta WHERE key = 'V1'");
    database.sql("INSERT INTO meta (key, value) VALUES ('V1', '00000000 0.0.9 (abc)')");
    refuses("key list", ", 0.0.9 (abc)", "migration V1__store is not the same");

    let url = testkit::postgres::database();
    let line = |command: &str| format!("{command} --database-url {url}");
    folder.succeed(&line("migrate"));
    let database = Database::url(url.clone());
    database.sql("DELETE FROM meta WHERE key LIKE 'V%'");
    folder.succeed(&line("key list"));
    database.sql("INSERT INTO meta (key, value) VALUES ('V1', '00000000 0.0.9 (abc)')");
    for command in ["migrate", "config check", "key list", "serve --listen 127.0.0.1:0"] {
        refuses(&line(command), ", 0.0.9 (abc)", "migration V1__store is not the same");
    }
}
