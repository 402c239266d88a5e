//! Promise 48: no command destroys a store by an operator's mistake, and every database that `restore` accepts is served.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use testkit::{Database, Folder, Random, Request, Server, Signal, TIMEOUT, new_pet, trial, within};

/// Names in a data directory. The last three do not exist while a service runs.
const FILES: [&str; 8] = [
    "petstore.db", "petstore.db-wal", "petstore.db-shm", "petstore.lock", "quickstart.key", "petstore.db-journal",
    "petstore.sync-failed", ".petstore-1.partial",
];

/// The store of the command's own data directory, and another one.
const STORES: [&str; 2] = ["petstore-data", "other"];

const COMMANDS: [&str; 7] = [
    "pets export FILE", "pets export FILE --force", "messages export FILE", "messages export FILE --force",
    "backup FILE", "backup FILE --force", "manual FOLDER",
];

/// A way to name a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Path,
    AbsolutePath,
    Dots,
    Link,
    LinkToLink,
    LinkedFolder,
    HardLink,
}

const WAYS: [By; 7] = [By::Path, By::AbsolutePath, By::Dots, By::Link, By::LinkToLink, By::LinkedFolder, By::HardLink];

#[test]
fn no_command_writes_to_the_files_of_a_store() {
    let (folder, mut random) = (Folder::with_account(), Random::from_seed());
    let key = folder.key();
    folder.succeed("account create eve@example.com --data-dir other");
    let service = folder.serve("serve");
    assert_eq!((service.create_pet(&key, "Rex").status(), service.send_message(&key, "Hello").status()), (201, 202));
    service.end_by(Signal::TERM);
    let services = STORES.map(|store| {
        folder.write(&format!("{store}/quickstart.key"), "a key");
        folder.serve(&format!("serve --data-dir {store}"))
    });
    // Suspended services cannot change the files. A command writes the log back when it opens a database, unless a service
    // was suspended within a write.
    within(TIMEOUT, "suspending between writes", || {
        services.iter().for_each(|service| service.signal(Signal::CONT));
        services.iter().for_each(|service| service.suspend());
        STORES.iter().all(|store| folder.run(&format!("pets export --data-dir {store}")).code == Some(0))
    });
    symlink(".", folder.path("linked")).unwrap();
    let before = snapshot(&folder);
    let (mut cases, mut refused) = (0, 0);
    for command in COMMANDS {
        for (store, file, by) in targets() {
            if !trial::is_full() && random.below(6) > 0 {
                continue;
            }
            let Some(path) = named(&folder, &format!("{store}/{file}"), by) else { continue };
            let line = command.replace("FILE", path.to_str().unwrap()).replace("FOLDER", "names");
            let ended = folder.run(&line);
            assert!(snapshot(&folder) == before, "{line}, {by:?} {store}/{file}: {ended:?}");
            cases += 1;
            refused += u32::from(ended.code == Some(1));
        }
    }
    services.iter().for_each(|service| service.signal(Signal::CONT));
    assert_eq!(services[0].create_pet(&key, "Mimi").status(), 201);
    for (service, store) in services.into_iter().zip(STORES) {
        assert_eq!(service.end_by(Signal::TERM).code, Some(0));
        assert_eq!(Database::folder(&folder.path(store)).sql("PRAGMA integrity_check"), "ok");
    }
    assert_eq!(folder.succeed("pets export").lines().count(), 2);
    // Controls: elsewhere, each command replaces files of these names, and a changed file is noticed.
    fs::create_dir(folder.path("names/elsewhere")).unwrap();
    for line in ["pets export names/elsewhere/petstore.db", "backup --force names/elsewhere/petstore.db"] {
        folder.succeed(line);
    }
    folder.succeed("manual names/elsewhere");
    let stopped = snapshot(&folder);
    folder.write("other/petstore.lock", "{}");
    assert!(snapshot(&folder) != stopped);
    trial::measured(&format!("{cases} commands that name a file of a store, {refused} refused, 0 stores damaged"));
}

fn targets() -> impl Iterator<Item = (&'static str, &'static str, By)> {
    let files = STORES.into_iter().flat_map(|store| FILES.map(|file| (store, file)));
    files.flat_map(|(store, file)| WAYS.map(|by| (store, file, by)))
}

/// Names `file` in this way, if that is possible. In `names`, links have the name of a page of the manual.
fn named(folder: &Folder, file: &str, by: By) -> Option<PathBuf> {
    let _ = fs::remove_dir_all(folder.path("names"));
    fs::create_dir(folder.path("names")).unwrap();
    let link = PathBuf::from("names/petstore.1");
    match by {
        By::Path => return Some(file.into()),
        By::AbsolutePath => return Some(folder.path(file)),
        By::Dots => return Some(format!("./names/../{file}").into()),
        By::LinkedFolder => return Some(Path::new("linked").join(file)),
        By::Link => symlink(Path::new("..").join(file), folder.path(&link)).unwrap(),
        By::LinkToLink => {
            symlink("link", folder.path(&link)).unwrap();
            symlink(folder.path(file), folder.path("names/link")).unwrap();
        }
        By::HardLink => fs::hard_link(folder.path(file), folder.path(&link)).ok()?,
    }
    Some(link)
}

/// The identity and content of each file. The content of the index changes with every process that reads.
fn snapshot(folder: &Folder) -> Vec<(PathBuf, Option<u64>, Vec<u8>)> {
    let files = STORES.into_iter().flat_map(|store| FILES.map(|file| Path::new(store).join(file)));
    let of = |file: PathBuf| {
        let inode = folder.path(&file).symlink_metadata().ok().map(|found| found.ino());
        let content = if file.ends_with("petstore.db-shm") { None } else { fs::read(folder.path(&file)).ok() };
        (file, inode, content.unwrap_or_default())
    };
    files.map(of).collect()
}

const RELAY_INDEX: &str = "CREATE INDEX messages_by_sending ON messages (sent_at, account_id, id)";

#[test]
fn every_restored_database_is_served() {
    let (folder, key) = Folder::with_key();
    let service = folder.serve("serve");
    assert_eq!(serves(&service, &key), Ok(()));
    service.end_by(Signal::TERM);
    folder.succeed("backup good.db");
    let changes = changes(&folder.path("good.db"));
    let count = changes.len();
    let (mut restored, mut refused) = (0, 0);
    for change in &changes {
        let _ = fs::remove_dir_all(folder.path("new"));
        changed(&folder, change, "changed.db");
        let ended = folder.run("restore changed.db --data-dir new");
        if ended.code == Some(0) {
            let service = folder.serve("serve --data-dir new");
            assert_eq!(serves(&service, &key), Ok(()), "{change}");
            service.end_by(Signal::TERM);
            restored += 1;
            println!("restored: {change}");
        } else {
            assert!(ended.code == Some(1) && ended.stderr.starts_with("error: changed.db: "), "{change}: {ended:?}");
            assert!(!folder.path("new").exists(), "{change}");
            refused += 1;
        }
    }
    // Controls: databases of petstore are restored, others are not, and one that lacks a table is not served.
    for accepted in ["", RELAY_INDEX] {
        assert!(changes.iter().any(|change| change == accepted));
    }
    assert!(restored >= 2 && refused > 10, "{restored} restored, {refused} refused");
    let _ = fs::remove_dir_all(folder.path("new"));
    fs::create_dir(folder.path("new")).unwrap();
    changed(&folder, "PRAGMA foreign_keys = OFF; DROP TABLE orders", "new/petstore.db");
    assert_eq!(folder.run("serve --data-dir new").code, Some(1));
    trial::measured(&format!(
        "{count} changed backups: {refused} refused, {restored} restored, and each of these served"
    ));
}

/// Copies the backup and changes it by SQL.
fn changed(folder: &Folder, sql: &str, to: &str) {
    fs::copy(folder.path("good.db"), folder.path(to)).unwrap();
    Connection::open(folder.path(to)).unwrap().execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Statements that change every object of the schema, and the rows that a start reads.
fn changes(backup: &Path) -> Vec<String> {
    let conn = Connection::open(backup).unwrap();
    let mut read = conn.prepare("SELECT type, name FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'").unwrap();
    let objects = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let objects: Vec<(String, String)> = objects.map(Result::unwrap).collect();
    let mut changes: Vec<String> = ["", RELAY_INDEX, "DELETE FROM schema_history"].map(Into::into).into();
    for (kind, name) in &objects {
        changes.push(format!("PRAGMA foreign_keys = OFF; DROP {kind} {name}"));
    }
    for (_, table) in objects.iter().filter(|(kind, _)| kind == "table") {
        let was = format!("PRAGMA legacy_alter_table = ON; ALTER TABLE {table} RENAME TO was; CREATE VIEW {table} AS");
        let endless = "WITH RECURSIVE endless AS (SELECT * FROM was UNION ALL SELECT * FROM endless)";
        changes.extend([
            format!("CREATE TRIGGER foreign_one BEFORE INSERT ON {table} BEGIN SELECT raise(IGNORE); END"),
            format!("CREATE TRIGGER foreign_one AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"),
            format!("ALTER TABLE {table} ADD COLUMN foreign_one INTEGER"),
            format!("PRAGMA foreign_keys = OFF; {was} SELECT * FROM was"),
            format!("PRAGMA foreign_keys = OFF; {was} {endless} SELECT * FROM endless"),
        ]);
    }
    let last: i32 = conn.query_row("SELECT max(version) FROM schema_history", [], |row| row.get(0)).unwrap();
    for version in 1..=last {
        for change in ["DELETE FROM schema_history", "UPDATE schema_history SET name = 'other'"] {
            changes.push(format!("{change} WHERE version = {version}"));
        }
    }
    for key in ["deployment", "keys_version", "store_id"] {
        changes.push(format!("DELETE FROM meta WHERE key = '{key}'"));
        changes.push(format!("UPDATE meta SET value = 'other' WHERE key = '{key}'"));
    }
    let others = [
        "CREATE UNIQUE INDEX foreign_one ON orders (account_id)",
        "CREATE TABLE foreign_one (id INTEGER)",
        "CREATE TABLE messages_by_sending (id INTEGER)",
        "CREATE UNIQUE INDEX messages_by_sending ON messages (account_id)",
        "DROP INDEX orders_of_pet; CREATE INDEX orders_of_pet ON orders (pet_id) WHERE status <> 3",
        "ANALYZE",
        "PRAGMA user_version = 7",
    ];
    changes.extend(others.map(Into::into));
    changes
}

/// Returns whether the service adds an animal, an order and a message, and finds them.
fn serves(service: &Server, key: &str) -> Result<(), String> {
    let post = |path: &str, body: &str| Request::new(service.store(), "POST", path).key(key).json(body).send_blocking();
    let created = post("/v1/pets", &new_pet("Rex"));
    if created.status() != 201 {
        return Err(created.shown());
    }
    let order = post("/v1/store/orders", &format!(r#"{{"petId":{}}}"#, created.id()));
    let message = service.send_message(key, "Hello");
    let found = service.get(&format!("/v1/pets/{}", created.id()), key);
    let orders = service.get("/v1/store/orders", key);
    let messages = Request::new(service.messages(), "GET", "/v1/messages").key(key).send_blocking();
    let responses = [(order, 201), (message, 202), (found, 200), (orders, 200), (messages, 200)];
    responses.iter().try_for_each(|(response, status)| match response.status() == *status {
        true => Ok(()),
        false => Err(response.shown()),
    })
}
