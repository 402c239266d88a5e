//! Promise 31: a restore that fails or is killed at any system call leaves either the old or the new database intact.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use petstore::store::sqlite::{Options, Sqlite};
use rusqlite::Connection;
use testkit::{Database, Random, succeed, trial};

use verification::injected::{Calls, Fault, KILL};

/// System calls that change files and folders.
const CALLS: Calls = Calls {
    names: &["unlink", "rename", "fsync", "fdatasync", "ftruncate", "pwrite64"],
    faults: ["error=EIO", "error=EPERM", "error=EROFS", KILL],
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_leaves_the_old_or_the_new_database_intact() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::make(folder.path()).await;
    let mut cases: Vec<_> = Old::ALL.into_iter().flat_map(|old| place.cases(old)).collect();
    let all = cases.len();
    if !trial::is_full() {
        cases = sample(cases, &mut Random::from_seed(), 12);
    }
    let (mut old, mut new, mut again) = (0, 0, 0);
    for (number, case) in cases.iter().enumerate() {
        let restored = place.restore_by(case);
        if case.fault.kills() {
            assert_eq!(restored.status.code(), None, "{case}: killed");
            place.restore_without_the_file(case).await;
            again += 1;
        }
        match place.outcome(case, &restored).await {
            Outcome::New => new += 1,
            Outcome::Old => old += 1,
        }
        if number % 100 == 99 {
            println!("{} of {}: {old} old, {new} new", number + 1, cases.len());
        }
    }
    assert!(old > 0 && new > 0, "{old} old and {new} new: little was tested");
    place.control().await;
    trial::measured(&format!(
        "{} of {all} faults ({}, by {}) in restores over a database with a log, with a hot journal, without its file, with \
         an empty file, and corrupt: {old} times the old database, {new} times the new one, always intact, the exit status \
         true, no unfinished file after the next start; {again} second restores after a kill, without the database's \
         file: the new one; a new file beside the old journal is noticed",
        cases.len(),
        CALLS.names.join(", "),
        CALLS.faults.join(", "),
    ));
}

/// Selects every `unlink` that fails with EIO or is killed in a restore over a database with a log, and about `others` of
/// the other cases.
fn sample(cases: Vec<Case>, random: &mut Random, others: u64) -> Vec<Case> {
    let removes = |case: &Case| {
        let Fault { call, fault, .. } = case.fault;
        case.old == Old::Log && call == "unlink" && ["error=EIO", KILL].contains(&fault)
    };
    let (mut sample, rest): (Vec<_>, Vec<_>) = cases.into_iter().partition(removes);
    let of = rest.len() as u64;
    sample.extend(rest.into_iter().filter(|_| random.below(of) < others));
    sample
}

/// Content of the folder before a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    /// A database whose newest rows are in its write-ahead log.
    Log,
    /// A database in the middle of a transaction, with the journal that undoes it.
    Journal,
    /// The journal of [`Self::Journal`] without the database.
    JournalAlone,
    /// The journal of [`Self::Journal`] beside an empty database file.
    JournalAndEmpty,
    /// Invalid files under the names of the database and the log.
    Corrupt,
}

impl Old {
    const ALL: [Self; 5] = [Self::Log, Self::Journal, Self::JournalAlone, Self::JournalAndEmpty, Self::Corrupt];
}

struct Case {
    old: Old,
    fault: Fault,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.old, self.fault)
    }
}

#[derive(Debug)]
enum Outcome {
    Old,
    New,
}

/// Templates of the data directory before a restore, the backup, and the data directory of the restores.
struct Place {
    folder: PathBuf,
    /// Names of the animals in the old and the new database, in order of their ids.
    old: Vec<String>,
    new: Vec<String>,
}

impl Place {
    async fn make(folder: &Path) -> Self {
        let place = Self { folder: folder.to_owned(), old: names("old", 300), new: names("new", 900) };
        let new = place.folder.join("new");
        fill(&new, &place.new).await;
        succeed(Database::folder(&new).petstore("backup").arg(place.backup()));

        // The last hundred animals are only in the log.
        let made = place.folder.join("made");
        fill(&made, &place.old[..200]).await;
        let conn = Connection::open(made.join("petstore.db")).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        insert(&conn, &place.old[200..]);
        // Its rows are not petstore's own.
        fs::write(made.join("petstore.lock"), "unchecked").unwrap();
        copy(&made, &place.template(Old::Log));
        drop(conn);

        // An uncommitted transaction has changed the file.
        let conn = Connection::open(made.join("petstore.db")).unwrap();
        conn.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 5; BEGIN").unwrap();
        conn.execute_batch("UPDATE pets SET name = 'undone ' || name").unwrap();
        insert(&conn, &names("undone", 2_000));
        copy(&made, &place.template(Old::Journal));
        assert!(place.template(Old::Journal).join("petstore.db-journal").metadata().unwrap().len() > 512);
        drop(conn);
        let [alone, empty, corrupted] =
            [Old::JournalAlone, Old::JournalAndEmpty, Old::Corrupt].map(|old| place.template(old));
        copy(&place.template(Old::Journal), &alone);
        fs::remove_file(alone.join("petstore.db")).unwrap();
        copy(&place.template(Old::Journal), &empty);
        fs::write(empty.join("petstore.db"), "").unwrap();
        copy(&place.template(Old::Log), &corrupted);
        fs::write(corrupted.join("petstore.db"), corrupt()).unwrap();
        fs::write(corrupted.join("petstore.db-wal"), "This is no log.").unwrap();
        place
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("backup.db")
    }

    fn template(&self, old: Old) -> PathBuf {
        self.folder.join(format!("{old:?}"))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Counts the calls of a restore without faults. Returns a case for each call and each fault.
    fn cases(&self, old: Old) -> Vec<Case> {
        copy(&self.template(old), &self.data());
        let file = self.folder.join("trace");
        let restored = self.restore(Database::folder(&self.data()).petstore_by(Fault::count(&CALLS, &file), "restore"));
        assert!(restored.status.success(), "{old:?}: {}", String::from_utf8_lossy(&restored.stderr));
        assert_eq!(read(&self.data().join("petstore.db")).unwrap(), self.new, "{old:?}");
        let faults = Fault::all(&CALLS, &file, "");
        assert!(faults.iter().any(|fault| fault.call == "rename"), "{old:?}");
        faults.into_iter().map(|fault| Case { old, fault }).collect()
    }

    /// Restores into the folder of the case, with its fault.
    fn restore_by(&self, case: &Case) -> Output {
        copy(&self.template(case.old), &self.data());
        let strace = case.fault.strace(&self.folder.join("trace"));
        self.restore(Database::folder(&self.data()).petstore_by(strace, "restore"))
    }

    fn restore(&self, mut command: Command) -> Output {
        command.arg(self.backup()).arg("--force").output().unwrap()
    }

    /// Returns which database the folder holds after the next start. Fails if the exit status says otherwise.
    async fn outcome(&self, case: &Case, restored: &Output) -> Outcome {
        let stderr = String::from_utf8_lossy(&restored.stderr);
        let is_untouched = fs::read(self.data().join("petstore.db")).is_ok_and(|file| file == corrupt());
        let found = found(&self.data()).await;
        let outcome = match (case.old, found) {
            (_, Ok(names)) if names == self.new => Outcome::New,
            (Old::Log | Old::Journal, Ok(names)) if names == self.old => Outcome::Old,
            (Old::JournalAlone | Old::JournalAndEmpty, Err(why)) if why.contains("this folder has had a database") => {
                Outcome::Old
            }
            (Old::Corrupt, Err(_)) if is_untouched => Outcome::Old,
            (_, Ok(names)) => panic!("{case}: {} animals, {stderr}", names.len()),
            (_, Err(why)) => panic!("{case}: {why}, {stderr}"),
        };
        match (restored.status.code(), &outcome) {
            (Some(0), Outcome::New) | (Some(1), Outcome::Old) => {}
            (Some(1), Outcome::New) => assert!(stderr.contains("is in place, but"), "{case}: {stderr}"),
            (None, _) if case.fault.kills() => {}
            (code, outcome) => panic!("{case}: exit status {code:?}, {outcome:?}: {stderr}"),
        }
        outcome
    }

    /// Restores again after a kill, with the database's file removed and the other files kept.
    async fn restore_without_the_file(&self, case: &Case) {
        let again = self.folder.join("again");
        copy(&self.data(), &again);
        let _ = fs::remove_file(again.join("petstore.db"));
        let restored = self.restore(Database::folder(&again).petstore("restore"));
        assert!(restored.status.success(), "{case}: {}", String::from_utf8_lossy(&restored.stderr));
        assert_eq!(found(&again).await.map(|names| names.len()), Ok(self.new.len()), "{case}: restored again");
    }

    /// Control: a restore that leaves the old journal beside the new file is noticed.
    async fn control(&self) {
        copy(&self.template(Old::Journal), &self.data());
        fs::copy(self.backup(), self.data().join("petstore.db")).unwrap();
        assert_ne!(found(&self.data()).await.as_ref(), Ok(&self.new), "the journal does not matter");
    }
}

/// Opens and closes the database, and returns the names of its animals. Fails if unfinished files are left.
async fn found(data_dir: &Path) -> Result<Vec<String>, String> {
    let opened = Sqlite::open(&Options::new(data_dir));
    let entries = fs::read_dir(data_dir).unwrap().map(|entry| entry.unwrap().path());
    let unfinished: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "partial")).collect();
    assert_eq!(unfinished, [] as [PathBuf; 0], "the next start removes them");
    opened.map_err(|error| error.to_string())?.close().await;
    read(&data_dir.join("petstore.db")).map_err(|error| error.to_string())
}

fn read(file: &Path) -> rusqlite::Result<Vec<String>> {
    let conn = Connection::open(file)?;
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if check != "ok" {
        return Ok(vec![check]);
    }
    conn.prepare("SELECT name FROM pets ORDER BY id")?.query_map([], |row| row.get(0))?.collect()
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{prefix} {number}")).collect()
}

fn corrupt() -> Vec<u8> {
    b"This is no database. ".repeat(1_000)
}

/// Creates a database with these animals.
async fn fill(data_dir: &Path, names: &[String]) {
    Sqlite::open(&Options::new(data_dir)).unwrap().close().await;
    insert(&Connection::open(data_dir.join("petstore.db")).unwrap(), names);
}

fn insert(conn: &Connection, names: &[String]) {
    // Fails within a transaction, which then contains the animals too.
    let transaction = conn.unchecked_transaction();
    for name in names {
        conn.execute("INSERT INTO pets (name, category_id, status) VALUES (?1, 1, 0)", [name]).unwrap();
    }
    if let Ok(transaction) = transaction {
        transaction.commit().unwrap();
    }
}

/// Replaces the folder `to` by a copy of `from`.
pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
