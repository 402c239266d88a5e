//! Promise 51: a restart never loses, mixes or replaces a store whose files were moved or replaced.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use testkit::{Database, Random, trial};
use verification::writers::Mix;
use verification::{Ledger, Writers};

const FILES: [&str; 4] = ["petstore.db", "petstore.db-wal", "petstore.db-shm", "petstore.lock"];

/// Large messages, because a few fill the write-ahead log.
const LARGE: Mix = Mix { clients: 8, messages_one_in: 1, length: 9_000, keyed: false };

/// Size of the log at which a checkpoint is due, in bytes.
const DUE: u64 = 4_096 * 4_120;

/// Starts after a change, as by a supervisor.
const RESTARTS: u32 = 2;

/// Replacement of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Nothing,
    /// Its copy from before the log last restarted, made while the service ran.
    Copy,
    /// The file of another store.
    Other,
    /// A backup of this store from before or after the log last restarted. Only for the database file.
    EarlierBackup,
    LaterBackup,
}

/// Part of the log that the database file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    /// All of it, and the log is empty.
    Empty,
    /// A part, because another process is reading.
    Partly,
    Wholly,
}

/// Changes of one file or two, or of the folder if there are none.
#[derive(Clone, Debug)]
struct Case {
    changes: Vec<(&'static str, By)>,
    applied: Applied,
    under_load: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        let singles = FILES.into_iter().flat_map(|file| {
            let backups = [By::EarlierBackup, By::LaterBackup].into_iter().filter(move |_| file == FILES[0]);
            [By::Nothing, By::Copy, By::Other].into_iter().chain(backups).map(move |by| (file, by))
        });
        let singles: Vec<_> = singles.collect();
        let pairs = singles.iter().flat_map(|first| singles.iter().map(move |second| vec![*first, *second]));
        let pairs = pairs.filter(|pair| pair[0].0 < pair[1].0);
        let changes: Vec<_> = singles.iter().map(|single| vec![*single]).chain([vec![]]).chain(pairs).collect();
        let with = |applied, under_load| {
            changes.iter().map(move |changes| Self { changes: changes.clone(), applied, under_load })
        };
        let states = [Applied::Empty, Applied::Partly, Applied::Wholly].map(|applied| (applied, false));
        states.into_iter().chain([(Applied::Wholly, true)]).flat_map(|(applied, load)| with(applied, load)).collect()
    }
}

#[test]
fn restart_never_loses_or_mixes_a_store() {
    let mut random = Random::from_seed();
    let mut cases = Case::all();
    // A run in full has every case.
    let rounds = trial::rounds(12).min(cases.len() as u32);
    let (mut refused, mut served, mut acknowledged) = (0, 0, 0);
    for _ in trial::counted(rounds) {
        let case = cases.swap_remove(random.index(cases.len()));
        let ledger = Ledger::default();
        let (starts, rejected) = run(&case, &ledger);
        served += starts;
        refused += rejected;
        acknowledged += ledger.acknowledged();
    }
    assert!(refused > 0 && acknowledged > 0, "little was tested");
    earlier_copy_lacks_writes();
    trial::measured(&format!(
        "{rounds} cases: files moved away or replaced, singly and in pairs, with the log empty, partly or wholly applied; \
         {refused} starts refused, {served} served, with all of the acknowledged writes; {acknowledged} acknowledged, 0 \
         lost once the files are back, 0 mixed, 0 empty stores"
    ));
}

/// Returns how many starts were served and refused after the change.
fn run(case: &Case, ledger: &Ledger) -> (u32, u32) {
    let folder = tempfile::tempdir().unwrap();
    let [store, copies, other, aside] = ["store", "copies", "other", "aside"].map(|name| folder.path().join(name));
    let (database, elsewhere) = (Database::folder(&store), Database::folder(&other));
    let (key, other_key) = (database.make_key(), elsewhere.make_key());
    let neighbour = elsewhere.serve();
    assert_eq!(neighbour.create_pet(&other_key, "other").status(), 201);
    let backup = |name| folder.path().join(name).display().to_string();
    for folder in [&copies, &aside] {
        fs::create_dir(folder).unwrap();
    }

    let mut service = database.serve_with("--existing-only");
    assert_eq!(ledger.create_pet(&service, &key, "first").status(), 201);
    for file in FILES {
        fs::copy(store.join(file), copies.join(file)).unwrap();
    }
    database.run(&format!("backup {}", backup("earlier")));
    assert_eq!(ledger.create_pet(&service, &key, "second").status(), 201);
    let mut reader = None;
    match case.applied {
        Applied::Empty => {
            assert!(service.stop().success());
            service = database.serve_with("--existing-only");
        }
        Applied::Partly => {
            let conn = Connection::open(store.join(FILES[0])).unwrap();
            // Otherwise it would remove the log of the ended service, as another program does.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
            conn.execute_batch("BEGIN").unwrap();
            conn.query_row("SELECT count(*) FROM pets", [], |_| Ok(())).unwrap();
            reader = Some(conn);
            let load = Writers::start(&service, &key, ledger, "large", LARGE);
            testkit::within(testkit::TIMEOUT * 2, "a checkpoint", || {
                store.join(FILES[1]).metadata().unwrap().len() > DUE * 3 / 2
            });
            load.stop();
        }
        // The start after a kill writes the log back.
        Applied::Wholly => {
            service.kill();
            service = database.serve_with("--existing-only");
        }
    }
    if case.applied == Applied::Wholly && case.under_load {
        assert_eq!(ledger.create_pet(&service, &key, "third").status(), 201);
    }
    database.run(&format!("backup {}", backup("later")));
    let load = case.under_load.then(|| Writers::start(&service, &key, ledger, "load", Mix::MIXED));

    let replacement = |file: &str, by: By| -> Option<PathBuf> {
        Some(match by {
            By::Nothing => return None,
            By::Copy => copies.join(file),
            By::Other => other.join(file),
            By::EarlierBackup => folder.path().join("earlier"),
            By::LaterBackup => folder.path().join("later"),
        })
    };
    let moved = folder.path().join("moved");
    if case.changes.is_empty() {
        fs::rename(&store, &moved).unwrap();
    }
    for (file, by) in &case.changes {
        fs::rename(store.join(file), aside.join(file)).unwrap();
        if let Some(replacement) = replacement(file, *by) {
            fs::copy(replacement, store.join(file)).unwrap();
        }
    }
    assert_eq!(service.ended(testkit::TIMEOUT * 2).code(), Some(1), "{case:?}");
    load.map(Writers::join);
    drop(reader);

    let (mut served, mut refused) = (0, 0);
    for number in 0..RESTARTS {
        let Ok(mut again) = start(&database, &store) else {
            refused += 1;
            continue;
        };
        served += 1;
        ledger.compare(&database).assert_no_violation();
        assert_eq!(ledger.create_pet(&again, &key, &format!("served-{number}")).status(), 201, "{case:?}");
        again.kill();
    }
    if served == 0 {
        put_back(case, &store, &aside, &moved);
    }
    let mut again = start(&database, &store).unwrap_or_else(|()| panic!("{case:?}: the files are back"));
    assert_eq!(ledger.create_pet(&again, &key, "last").status(), 201, "{case:?}");
    assert!(again.stop().success());
    ledger.compare(&database).assert_no_violation();
    assert_eq!(database.sql("PRAGMA integrity_check"), "ok", "{case:?}");
    (served, refused)
}

/// The control: without its record, an earlier copy is served.
fn earlier_copy_lacks_writes() {
    let (database, ledger) = (Database::temporary(), Ledger::default());
    let (key, file) = (database.make_key(), database.file(FILES[0]));
    let mut service = database.serve();
    fs::copy(&file, database.file("copy")).unwrap();
    assert_eq!(ledger.create_pet(&service, &key, "lost").status(), 201);
    assert!(service.stop().success());
    fs::rename(database.file("copy"), file).unwrap();
    fs::write(database.file(FILES[3]), "unchecked").unwrap();
    assert!(database.serve().stop().success());
    assert!(ledger.compare(&database).violation().is_some());
}

/// Starts the service as a supervisor does. Fails if it refuses.
fn start(database: &Database, store: &Path) -> Result<testkit::Server, ()> {
    let service = testkit::Server::try_start(database.serve_command("--existing-only"));
    service.filter(|_| store.exists()).ok_or(())
}

fn put_back(case: &Case, store: &Path, aside: &Path, moved: &Path) {
    if case.changes.is_empty() {
        let _ = fs::remove_dir_all(store);
        fs::rename(moved, store).unwrap();
    }
    for (file, _) in &case.changes {
        fs::rename(aside.join(file), store.join(file)).unwrap();
    }
}
