//! Promise 14: on a read-only disk reads are answered, and writes refused.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use testkit::blocking::Response;
use testkit::writers::Mix;
use testkit::{Database, Ledger, Random, Server, TIMEOUT, Writers, trial, within};

use crate::small_disk::SmallDisk;

#[test]
fn read_only_disk_serves_reads() {
    let (rounds, mut random) = (trial::rounds(2), Random::from_seed());
    let disk = SmallDisk::new();
    let database = disk.database();
    let (key, ledger) = (database.make_key(), Ledger::default());
    for round in 1..=rounds {
        // The control: on the same disk, writable, a write is taken.
        let mut service = database.serve();
        assert_eq!(ledger.create_pet(&service, &key, &format!("writable-{round}")).status, 201);
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), Mix::MIXED);
        thread::sleep(Duration::from_millis(50 + random.below(150)));
        // Half of the time a log is left behind, which can't be written back.
        if round % 2 == 0 {
            load.stop();
            service.stop();
        } else {
            service.kill();
            load.join();
            assert!(disk.file("petstore.db-wal").metadata().unwrap().len() > 0);
        }
        disk.make_read_only(true);

        let mut service = database.serve();
        refuses_writes(&service, &key, &ledger, &format!("read-only-{round}"));
        let exported = database.petstore("pets export").output().unwrap();
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        let exported = String::from_utf8(exported.stdout).unwrap();
        let there = exported.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let there = there.map(|pet| (pet["name"].as_str().unwrap().to_owned(), pet["id"].to_string())).collect();
        assert_eq!(ledger.missing_animals(&there), Vec::<String>::new(), "round {round}");
        let refused = database.petstore("key create --account ada@example.com --name late").output().unwrap();
        let why = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && why.contains("the disk is read-only"), "{why}");

        // It was opened for reading: once there is more to be had, somebody must start it anew.
        disk.make_read_only(false);
        assert_eq!(service.ended(TIMEOUT).code(), Some(1));
    }
    a_log_without_its_index_is_not_passed_over(&disk, &database, &key, &ledger);
    let mut service = database.serve();
    assert_eq!(ledger.create_pet(&service, &key, "at last").status, 201);
    service.stop();
    let copy = tempfile::tempdir().unwrap();
    disk.copy(copy.path());
    ledger.compare(copy.path()).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} starts on a read-only disk, half of them after a crash: writes 503 with `Retry-After`, reads 200, exit \
         status 1 once it is writable; {ledger}; every acknowledged animal readable, 0 lost; {}",
        ledger.notices_damage(copy.path())
    ));
}

#[test]
fn disk_that_becomes_read_only_serves_reads() {
    let (rounds, mut random) = (trial::rounds(2), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let database = Database::folder(&store);
    let (key, ledger) = (database.make_key(), Ledger::default());
    let mut service = database.serve();
    let load = Writers::start(&service, &key, &ledger, "load", Mix::MIXED);
    for round in 1..=rounds {
        assert_eq!(ledger.create_pet(&service, &key, &format!("writable-{round}")).status, 201);
        thread::sleep(Duration::from_millis(50 + random.below(150)));
        let fault = refuse_to_write(&service, &store, &folder.path().join("trace"));
        let mut tries = 0;
        within(TIMEOUT, "refusing", || {
            tries += 1;
            ledger.create_pet(&service, &key, &format!("between-{round}-{tries}")).status == 503
        });
        refuses_writes(&service, &key, &ledger, &format!("read-only-{round}"));
        end(fault);
        let mut tries = 0;
        within(Duration::from_secs(5), "coming back", || {
            tries += 1;
            ledger.create_pet(&service, &key, &format!("again-{round}-{tries}")).status == 201
        });
    }
    load.stop();
    assert!(service.stop().success());
    ledger.compare(&store).assert_nothing_refused_is_there();
    trial::measured(&format!(
        "{rounds} times every write to the files fails with EROFS, as on a broken disk that the kernel remounts: writes 503, \
         reads 200, back without a restart; {ledger}; 0 lost, none of the unavailable there; {}",
        ledger.notices_damage(&store)
    ));
}

fn refuses_writes(service: &Server, key: &str, ledger: &Ledger, name: &str) {
    for number in 0..3 {
        let answer: Response = ledger.create_pet(service, key, &format!("{name}-{number}"));
        answer.assert_unavailable();
        service.send_message(key, "refused").assert_unavailable();
        assert_eq!(service.get("/v1/pets", key).status, 200);
        assert_eq!(service.get("/v1/pets/1", key).status, 200);
        assert_eq!(service.get("/livez", key).status, 200);
    }
}

/// What was acknowledged last is in the log: a start that can't read it must not pretend.
fn a_log_without_its_index_is_not_passed_over(disk: &SmallDisk, database: &Database, key: &str, ledger: &Ledger) {
    let mut service = database.serve();
    assert_eq!(ledger.create_pet(&service, key, "only in the log").status, 201);
    service.kill();
    fs::remove_file(disk.file("petstore.db-shm")).unwrap();
    disk.make_read_only(true);
    let ended = database.petstore("serve").output().unwrap();
    let why = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && why.contains("a write-ahead log without its index"), "{why}");
    disk.make_read_only(false);
}

/// From here on, what changes the database's files fails as on a file system that is mounted read-only.
fn refuse_to_write(service: &Server, store: &Path, trace: &Path) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-p", &service.pid().to_string(), "-o"]).arg(trace);
    for name in ["petstore.db", "petstore.db-wal"] {
        strace.arg("-P").arg(store.join(name));
    }
    strace.args(["-e", "trace=pwrite64,ftruncate", "-e", "inject=pwrite64,ftruncate:error=EROFS"]);
    strace.stderr(Stdio::null()).spawn().unwrap()
}

/// strace lets go of what it watches when it is told to end.
fn end(mut fault: Child) {
    let pid = rustix::process::Pid::from_child(&fault);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    fault.wait().unwrap();
}
