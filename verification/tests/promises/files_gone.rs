//! Promise 1: nothing is acknowledged into files that were removed, replaced or moved while the service runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Database, Random, Shop, trial, within};
use verification::writers::Mix;
use verification::{Ledger, Writers, read_only};

use crate::sync_error::ended_and_was_not_ready;

const FILES: [&str; 3] = ["petstore.db", "petstore.db-wal", "petstore.db-shm"];

/// Maximum time until the process ends. It checks twice a second, and then answers clients for up to another second.
const LIMIT: Duration = Duration::from_secs(5);

/// A change to the database's files.
#[derive(Clone, Copy, Debug)]
enum Change {
    Removed(&'static [&'static str]),
    /// A copy is moved to the file's name.
    Replaced(&'static str),
    FolderMoved,
}

const CHANGES: [Change; 7] = [
    Change::Removed(&["petstore.db"]),
    Change::Removed(&["petstore.db-wal"]),
    Change::Removed(&["petstore.db-shm"]),
    Change::Removed(&FILES),
    Change::Replaced("petstore.db"),
    Change::Replaced("petstore.db-wal"),
    Change::FolderMoved,
];

#[test]
fn nothing_is_acknowledged_into_removed_files() {
    let (rounds, mut random) = (trial::rounds(CHANGES.len() as u32), Random::from_seed());
    let (mut sent, mut acknowledged, mut unavailable, mut longest) = (0, 0, 0, Duration::ZERO);
    for round in trial::counted(rounds) {
        let round = round as usize - 1;
        let change = CHANGES[round % CHANGES.len()];
        // Half of the rounds are idle.
        let loaded = (round / CHANGES.len() + round).is_multiple_of(2);
        let folder = tempfile::tempdir().unwrap();
        let (store, kept) = (folder.path().join("store"), folder.path().join("kept"));
        let database = Database::folder(&store);
        let (key, ledger) = (database.make_key(), Ledger::default());
        let mut service = database.serve();
        assert_eq!(ledger.create_pet(&service, &key, "first").status(), 201);
        let load = loaded.then(|| Writers::start(&service, &key, &ledger, "load", Mix::MIXED));
        random.sleep(50..250);
        // Control: the service ignores other files.
        fs::write(store.join("petstore.db-other"), "").unwrap();
        fs::remove_file(store.join("petstore.db-other")).unwrap();
        assert_eq!(ledger.create_pet(&service, &key, "second").status(), 201);

        // Hard links keep the removed files, to compare them with the acknowledged writes.
        fs::create_dir(&kept).unwrap();
        for file in &FILES[..2] {
            fs::hard_link(store.join(file), kept.join(file)).unwrap();
        }
        let since = Instant::now();
        change.apply(&store);
        if loaded {
            let create = |number| ledger.try_create_pet(&service, &key, &format!("after-{number}"));
            for response in (0..).map_while(|number| create(number).ok()) {
                assert_eq!(response.status(), 503, "{change:?}: {response:?}");
                sent += 1;
            }
        }
        let status = ended_and_was_not_ready(&mut service, &ledger);
        longest = longest.max(since.elapsed());
        assert_eq!(status, Some(1), "{change:?}");
        trial::judge(&format!("{change:?}"), since.elapsed(), LIMIT);
        load.map(Writers::join);
        ledger.compare(&Database::folder(&kept)).assert_no_violation();
        acknowledged += ledger.acknowledged();
        unavailable += ledger.unavailable();
    }
    assert!(unavailable > 0, "no write came after a change: little was tested");
    log_without_its_database_is_kept();
    reader_of_a_removed_file_ends();
    trial::measured(&format!(
        "{rounds} times files were removed, replaced or moved, half of them under 32 clients: 0 of {sent} writes sent \
         afterwards acknowledged, all {acknowledged} acknowledged before in the files that were removed; exit status 1 \
         after at most {:.1} s, never ready after the first 503 ({unavailable} in all)",
        longest.as_secs_f64()
    ));
}

impl Change {
    fn apply(self, store: &Path) {
        match self {
            Self::Removed(files) => files.iter().for_each(|file| fs::remove_file(store.join(file)).unwrap()),
            Self::Replaced(file) => {
                let copy = store.join("copy");
                fs::copy(store.join(file), &copy).unwrap();
                fs::rename(copy, store.join(file)).unwrap();
            }
            Self::FolderMoved => fs::rename(store, store.with_extension("moved")).unwrap(),
        }
    }
}

/// A supervisor restarts the service. The service must not create a database beside the old log, because SQLite would
/// remove that log.
fn log_without_its_database_is_kept() {
    let Shop { database, key } = Shop::on_sqlite();
    let ledger = Ledger::default();
    let mut service = database.serve();
    for number in 0..100 {
        assert_eq!(ledger.create_pet(&service, &key, &number.to_string()).status(), 201);
    }
    let (file, aside) = (database.file("petstore.db"), database.file("aside"));
    fs::rename(&file, &aside).unwrap();
    assert_eq!(service.ended(LIMIT).code(), Some(1));
    let stderr = database.rejects(Database::SERVE);
    assert!(stderr.contains("petstore.db: it was removed or moved away"), "{stderr}");
    fs::rename(&aside, &file).unwrap();
    database.serve().stop();
    ledger.compare(&database).assert_nothing_refused_is_there();
}

/// The service treats the disk as read-only, because it cannot open its lock file for writing.
fn reader_of_a_removed_file_ends() {
    let database = Database::temporary();
    let key = database.make_key();
    let mut service = database.serve_by(read_only(&database.file("petstore.lock")));
    assert_eq!(service.create_pet(&key, "refused").status(), 503);
    within(LIMIT, "readiness", || service.get("/readyz", &key).status() == 200);
    fs::remove_file(database.file("petstore.db")).unwrap();
    assert_eq!(service.ended(LIMIT).code(), Some(1));
}
