//! Promise 51: after a kill or a stop, a log that was lost or replaced by an older copy is never taken for the right one.

use std::fs;
use std::path::Path;

use testkit::{Database, Server};
use verification::writers::Mix;
use verification::{Ledger, Writers};

const LOG: &str = "petstore.db-wal";
const INDEX: &str = "petstore.db-shm";
const LOCK: &str = "petstore.lock";

/// A store, and its acknowledged writes.
struct Store {
    database: Database,
    key: String,
    ledger: Ledger,
}

impl Store {
    fn new() -> (Self, Server) {
        let database = Database::temporary();
        let store = Self { key: database.make_key(), database, ledger: Ledger::default() };
        let service = store.database.serve();
        store.add(&service, "first");
        (store, service)
    }

    fn add(&self, service: &Server, name: &str) {
        assert_eq!(self.ledger.create_pet(service, &self.key, name).status(), 201);
    }

    fn copy(&self, from: &str, to: &str) {
        fs::copy(self.database.file(from), self.database.file(to)).unwrap();
    }

    /// Asserts that no service and no command starts.
    fn is_refused(&self) {
        assert!(Server::try_start(self.database.serve_command("")).is_none(), "a start was not refused");
        self.database.rejects("pets export /dev/null");
    }

    fn has_everything(&self) {
        assert!(self.database.serve().stop().success());
        self.ledger.compare(&self.database).assert_no_violation();
    }
}

#[test]
fn log_that_a_command_wrote_back_in_part_is_needed() {
    let (store, mut service) = Store::new();
    let load = Writers::start(&service, &store.key, &store.ledger, "load", Mix::MIXED);
    // Like every start, it writes back what the log has so far.
    store.database.run("key list");
    store.add(&service, "last");
    service.kill();
    load.join();
    for (lost, by) in [(vec![LOG, INDEX], None), (vec![LOG], Some(""))] {
        let aside = store.database.file("aside");
        fs::rename(store.database.file(LOG), &aside).unwrap();
        for name in lost.iter().filter(|name| **name != LOG) {
            fs::remove_file(store.database.file(name)).unwrap();
        }
        by.inspect(|content| fs::write(store.database.file(LOG), content).unwrap());
        store.is_refused();
        fs::rename(aside, store.database.file(LOG)).unwrap();
    }
    store.has_everything();
}

#[test]
fn older_copy_of_the_log_is_refused() {
    let (store, mut service) = Store::new();
    store.copy(LOG, "copy");
    store.add(&service, "second");
    assert!(service.stop().success());
    store.copy(LOG, "right");
    // After a stop, the log is empty.
    store.copy("copy", LOG);
    store.is_refused();
    store.copy("right", LOG);

    let mut service = store.database.serve();
    store.add(&service, "third");
    store.copy(LOG, "copy");
    store.add(&service, "fourth");
    is_idle(&store);
    service.kill();
    store.copy(LOG, "right");
    store.copy("copy", LOG);
    store.is_refused();
    store.copy("right", LOG);
    store.has_everything();
}

/// Waits until the idle service has recorded its last commit.
fn is_idle(store: &Store) {
    // The index of the log has the last commit (sqlite.org/walformat.html, section 2.1).
    let last_commit = || {
        let index = fs::read(store.database.file(INDEX)).unwrap();
        let word = |number: usize| <[u8; 4]>::try_from(&index[4 * number..4 * number + 4]).unwrap();
        let [frames, first, second] = [4, 6, 7].map(|number| u32::from_ne_bytes(word(number)));
        let salts = [8, 9].map(|number| u32::from_be_bytes(word(number)));
        format!("log known {frames:08x} {:08x} {:08x} {first:08x} {second:08x}", salts[0], salts[1])
    };
    let record = || fs::read_to_string(store.database.file(LOCK)).unwrap();
    testkit::within(testkit::TIMEOUT, "a record of the last commit", || record().contains(&last_commit()));
}

#[test]
fn outdated_record_of_a_killed_command_is_replaced() {
    let (store, mut service) = Store::new();
    is_recorded(&store);
    let record = fs::read_to_string(store.database.file(LOCK)).unwrap();
    fs::write(store.database.file(LOCK), record.replace("log known", "log any  ")).unwrap();
    let load = Writers::start(&service, &store.key, &store.ledger, "load", Mix::MIXED);
    is_recorded(&store);
    service.kill();
    load.join();
    fs::rename(store.database.file(LOG), store.database.file("aside")).unwrap();
    store.is_refused();
    fs::rename(store.database.file("aside"), store.database.file(LOG)).unwrap();
    store.has_everything();
}

fn is_recorded(store: &Store) {
    let record = || fs::read_to_string(store.database.file(LOCK)).unwrap();
    testkit::within(testkit::TIMEOUT, "a record of the log", || record().contains("log known"));
}

#[test]
fn other_files_are_not_taken_for_those_of_the_store() {
    let (store, mut service) = Store::new();
    let backup = store.database.file("backups").join("petstore-1.db");
    fs::create_dir(backup.parent().unwrap()).unwrap();
    store.database.run(&format!("backup {}", backup.display()));
    // Another index would hide the commits of one process from the other. Suspended, the service does not notice and end.
    // Suspended within a write, the service would keep a lock.
    is_idle(&store);
    service.suspend();
    fs::rename(store.database.file(INDEX), store.database.file("index")).unwrap();
    let refused = store.database.rejects("key list");
    assert!(refused.contains("petstore.db-shm was removed"), "{refused}");
    service.kill();

    // A backup that was copied instead of restored.
    fs::rename(store.database.file("petstore.db"), store.database.file("file")).unwrap();
    fs::rename(store.database.file(LOG), store.database.file("log")).unwrap();
    fs::copy(&backup, store.database.file("petstore.db")).unwrap();
    store.is_refused();
    // Only the backups are left.
    for name in ["petstore.db", LOCK] {
        fs::rename(store.database.file(name), store.database.file(&format!("{name}-aside"))).unwrap();
    }
    store.is_refused();
    fs::rename(store.database.file("petstore.lock-aside"), store.database.file(LOCK)).unwrap();
    fs::rename(store.database.file("file"), store.database.file("petstore.db")).unwrap();
    fs::rename(store.database.file("log"), store.database.file(LOG)).unwrap();
    // The journal of another program's copy.
    fs::write(store.database.file("petstore.db-journal"), [1; 512]).unwrap();
    store.is_refused();
    fs::remove_file(store.database.file("petstore.db-journal")).unwrap();
    store.has_everything();
}

#[test]
fn restored_store_refuses_the_log_of_the_old_one() {
    let (store, mut service) = Store::new();
    let backup = store.database.file("copy");
    store.database.run(&format!("backup {}", backup.display()));
    service.kill();
    store.copy(LOG, "log");
    store.database.run(&format!("restore {} --force", backup.display()));
    store.copy("log", LOG);
    store.is_refused();
    fs::remove_file(store.database.file(LOG)).unwrap();
    assert!(Path::new(&store.database.file("petstore.db")).exists());
    store.has_everything();
}
