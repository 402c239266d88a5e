//! Promise 1: nothing is acknowledged into files that were removed, replaced or moved while the service runs.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use testkit::blocking::try_create_pet;
use testkit::writers::Mix;
use testkit::{Database, Ledger, Random, Writers, trial};

use crate::sync_error::ended_and_was_not_ready;
use crate::trace;

const FILES: [&str; 3] = ["petstore.db", "petstore.db-wal", "petstore.db-shm"];

/// Maximum time until the process ends. It checks twice a second, and then answers clients for up to another second.
fn soon() -> Duration {
    Duration::from_secs(if trial::is_full() { 5 } else { 20 })
}

/// A change to the database's files.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Removed(&'static [&'static str]),
    /// A copy is moved to the file's name.
    Replaced(&'static str),
    FolderMoved,
}

const FATES: [Fate; 7] = [
    Fate::Removed(&["petstore.db"]),
    Fate::Removed(&["petstore.db-wal"]),
    Fate::Removed(&["petstore.db-shm"]),
    Fate::Removed(&FILES),
    Fate::Replaced("petstore.db"),
    Fate::Replaced("petstore.db-wal"),
    Fate::FolderMoved,
];

#[test]
fn nothing_is_acknowledged_into_removed_files() {
    let (rounds, mut random) = (trial::rounds(FATES.len() as u32), Random::from_seed());
    let (mut asked, mut acknowledged, mut unavailable, mut longest) = (0, 0, 0, Duration::ZERO);
    for round in 0..rounds {
        let fate = FATES[round as usize % FATES.len()];
        // Half of the rounds are idle.
        let loaded = (round as usize / FATES.len() + round as usize).is_multiple_of(2);
        let folder = tempfile::tempdir().unwrap();
        let (store, kept) = (folder.path().join("store"), folder.path().join("kept"));
        let database = Database::folder(&store);
        let (key, ledger) = (database.make_key(), Ledger::default());
        let mut service = database.serve();
        assert_eq!(ledger.create_pet(&service, &key, "first").status, 201);
        let load = loaded.then(|| Writers::start(&service, &key, &ledger, "load", Mix::MIXED));
        thread::sleep(Duration::from_millis(50 + random.below(200)));
        // Control: the service ignores other files.
        fs::write(store.join("petstore.db-other"), "").unwrap();
        fs::remove_file(store.join("petstore.db-other")).unwrap();
        assert_eq!(ledger.create_pet(&service, &key, "second").status, 201);

        // Hard links keep the removed files, to compare them with the acknowledged writes.
        fs::create_dir(&kept).unwrap();
        for file in &FILES[..2] {
            fs::hard_link(store.join(file), kept.join(file)).unwrap();
        }
        let since = Instant::now();
        befall(fate, &store);
        if loaded {
            for number in 0.. {
                let name = format!("after-{number}");
                ledger.sent(&name);
                let Some(answer) = try_create_pet(&service.store, &key, &name) else { break };
                ledger.answered(&name, answer.status, answer.body());
                assert_eq!(answer.status, 503, "{fate:?}: {answer:?}");
                asked += 1;
            }
        }
        let status = ended_and_was_not_ready(&mut service, &ledger);
        longest = longest.max(since.elapsed());
        assert_eq!(status, Some(1), "{fate:?}");
        assert!(since.elapsed() <= soon(), "{fate:?}: it took {:?}", since.elapsed());
        load.map(Writers::join);
        let differences = ledger.compare(&kept);
        differences.assert_as_told();
        acknowledged += ledger.acknowledged();
        unavailable += ledger.unavailable();
        println!("round {} of {rounds}: {fate:?}, {ledger}", round + 1);
    }
    assert!(unavailable > 0, "nobody was writing at that moment: the test has tested little");
    a_log_without_its_database_is_kept();
    a_service_that_only_reads_ends_too();
    trial::measured(&format!(
        "{rounds} times files were removed, replaced or moved, half of them under 32 clients: 0 of {asked} writes sent \
         afterwards acknowledged, all {acknowledged} acknowledged before in the files that were removed; exit status 1 \
         after at most {:.1} s, never ready after the first 503 ({unavailable} in all)",
        longest.as_secs_f64()
    ));
}

fn befall(fate: Fate, store: &Path) {
    match fate {
        Fate::Removed(files) => files.iter().for_each(|file| fs::remove_file(store.join(file)).unwrap()),
        Fate::Replaced(file) => {
            let copy = store.join("copy");
            fs::copy(store.join(file), &copy).unwrap();
            fs::rename(copy, store.join(file)).unwrap();
        }
        Fate::FolderMoved => fs::rename(store, store.with_extension("moved")).unwrap(),
    }
}

/// A supervisor restarts the service. The service must not create a database beside the old log, because SQLite would
/// remove that log.
fn a_log_without_its_database_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let (key, ledger) = (database.make_key(), Ledger::default());
    let mut service = database.serve();
    for number in 0..100 {
        assert_eq!(ledger.create_pet(&service, &key, &number.to_string()).status, 201);
    }
    let (file, aside) = (folder.path().join("petstore.db"), folder.path().join("aside"));
    fs::rename(&file, &aside).unwrap();
    assert_eq!(service.ended(soon()).code(), Some(1));
    let refused = database.petstore("serve").output().unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && why.contains("petstore.db-wal"), "{why}");
    fs::rename(&aside, &file).unwrap();
    database.serve().stop();
    ledger.compare(folder.path()).assert_nothing_refused_is_there();
}

/// The service treats the disk as read-only, because opening its lock file fails with EROFS.
fn a_service_that_only_reads_ends_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let database = Database::folder(&store);
    let key = database.make_key();
    let mut strace = trace::strace(&folder.path().join("trace"));
    strace.arg("-P").arg(store.join("petstore.lock"));
    strace.args(["-e", "trace=openat", "-e", "inject=openat:error=EROFS"]);
    let mut service = database.serve_by(strace);
    assert_eq!(service.create_pet(&key, "refused").status, 503);
    assert_eq!(service.get("/readyz", &key).status, 200);
    fs::remove_file(store.join("petstore.db")).unwrap();
    assert_eq!(service.ended(soon()).code(), Some(1));
}
