//! Promise 14: on a read-only disk the service serves reads and rejects writes.

use std::fs;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Database, Random, Server, Shop, TIMEOUT, trial, within};
use verification::trace::attach;
use verification::writers::Mix;
use verification::{Ledger, SmallDisk, Writers, read_only};

#[test]
fn read_only_disk_serves_reads() {
    let (rounds, mut random) = (trial::rounds(2), Random::from_seed());
    let disk = SmallDisk::new();
    let database = disk.database();
    let (key, ledger) = (database.make_key(), Ledger::default());
    for round in trial::counted(rounds) {
        // Control: while the same disk is writable, a write is acknowledged.
        let mut service = database.serve();
        assert_eq!(ledger.create_pet(&service, &key, &format!("writable-{round}")).status(), 201);
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), Mix::MIXED);
        random.sleep(50..200);
        // Half of the rounds leave a log behind, which a read-only disk cannot checkpoint.
        if round % 2 == 0 {
            load.stop();
            service.stop();
        } else {
            service.kill();
            load.join();
            assert!(disk.file("petstore.db-wal").metadata().unwrap().len() > 0);
        }
        disk.make_read_only(true);

        let service = database.serve();
        assert_serves_only_reads(&service, &key, &ledger, &format!("read-only-{round}"));
        let exported = database.run("pets export");
        let there = exported.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let there = there.map(|pet| (pet["name"].as_str().unwrap().to_owned(), pet["id"].to_string())).collect();
        assert_eq!(ledger.missing_animals(&there), Vec::<String>::new(), "round {round}");
        let stderr = database.rejects("key create --account ada@example.com --name late");
        assert!(stderr.contains("the disk is read-only"), "{stderr}");

        // A database opened for reading only cannot be written. The process ends, so that a supervisor restarts it.
        disk.make_read_only(false);
        let ended = service.end();
        assert!(ended.code == Some(1) && ended.log().contains("the disk accepts writes again"), "{ended:?}");
    }
    log_without_its_index_prevents_the_start(&disk, &database, &key, &ledger);
    let mut service = database.serve();
    assert_eq!(ledger.create_pet(&service, &key, "at last").status(), 201);
    service.stop();
    let copied = disk.copy();
    ledger.compare(&copied).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} starts on a read-only disk, half of them after a crash: writes 503 with `Retry-After`, reads 200, exit \
         status 1 once it is writable; {ledger}; every acknowledged animal readable, 0 lost; {}",
        ledger.notices_damage(&copied)
    ));
}

#[test]
fn disk_that_becomes_read_only_serves_reads() {
    let (rounds, mut random) = (trial::rounds(2), Random::from_seed());
    let Shop { database, key } = Shop::on_sqlite();
    let ledger = Ledger::default();
    let mut service = database.serve();
    let load = Writers::start(&service, &key, &ledger, "load", Mix::MIXED);
    for round in trial::counted(rounds) {
        assert_eq!(ledger.create_pet(&service, &key, &format!("writable-{round}")).status(), 201);
        random.sleep(50..200);
        let mut tries = 0;
        let mut create = || {
            tries += 1;
            ledger.create_pet(&service, &key, &format!("{round}-{tries}")).status()
        };
        let calls = "pwrite64,ftruncate";
        let fault = attach(&service, &database, &["petstore.db", "petstore.db-wal"], calls, "error=EROFS");
        within(TIMEOUT, "rejecting writes", || create() == 503);
        assert_serves_only_reads(&service, &key, &ledger, &format!("read-only-{round}"));
        end(fault);
        within(Duration::from_secs(5), "recovery", || create() == 201);
    }
    load.stop();
    assert!(service.stop().success());
    ledger.compare(&database).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} times every write to the files fails with EROFS, as on a broken disk that the kernel remounts: writes 503, \
         reads 200, back without a restart; {ledger}; 0 lost, none of the unavailable there; {}",
        ledger.notices_damage(&database)
    ));
}

#[test]
fn idle_reader_of_a_read_only_mount_holds_no_writer_back() {
    let Shop { database, key } = Shop::on_sqlite();
    let writer = database.serve();
    assert_eq!(writer.create_pet(&key, "Rex").status(), 201);
    let reader = database.serve_by(read_only(database.data_dir()));
    for _ in 0..4 {
        assert_eq!(reader.get("/v1/pets", &key).status(), 200);
    }
    assert_eq!(writer.create_pet(&key, "Ada").status(), 201);
    within(TIMEOUT, "writing the log back", || {
        let row = database.sql("PRAGMA wal_checkpoint");
        let [_, pages, written_back] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        pages == written_back
    });
}

fn assert_serves_only_reads(service: &Server, key: &str, ledger: &Ledger, name: &str) {
    for number in 0..3 {
        ledger.create_pet(service, key, &format!("{name}-{number}")).assert_unavailable();
        service.send_message(key, "refused").assert_unavailable();
        for path in ["/v1/pets", "/v1/pets/1", "/livez"] {
            assert_eq!(service.get(path, key).status(), 200, "{path}");
        }
    }
}

/// The last acknowledged writes are in the log. A process that cannot read the log must not serve without them.
fn log_without_its_index_prevents_the_start(disk: &SmallDisk, database: &Database, key: &str, ledger: &Ledger) {
    let mut service = database.serve();
    assert_eq!(ledger.create_pet(&service, key, "only in the log").status(), 201);
    service.kill();
    fs::remove_file(disk.file("petstore.db-shm")).unwrap();
    disk.make_read_only(true);
    let stderr = database.rejects(Database::SERVE);
    assert!(stderr.contains("a write-ahead log without its index"), "{stderr}");
    disk.make_read_only(false);
}

/// strace detaches from the service on SIGINT.
fn end(mut fault: Child) {
    kill_process(Pid::from_child(&fault), Signal::INT).unwrap();
    fault.wait().unwrap();
}
