//! Processes that are killed, files that were copied, lost or taken away, and other programs that use the database.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sqlite_group_commit::{Atomicity, Database, Effect, Error, Folder, Options, Target, restore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::concurrency::outside;
use crate::{ADD, Number, SCHEMA, TIMEOUT, numbers, open, open_with, until};

const FILES: [&str; 4] = ["test.db", "test.db-wal", "test.db-shm", "test.lock"];

/// Folder of the database, set if this test binary runs as the process that is killed.
const KILLED: &str = "GROUP_COMMIT_TEST_FOLDER";

#[test]
fn killed_process_loses_no_acknowledged_write() {
    if let Some(folder) = std::env::var_os(KILLED) {
        write_until_killed(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 1..=5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["faults::killed_process_loses_no_acknowledged_write", "--exact", "--nocapture"]);
        let mut child = command.env(KILLED, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let mut of_round = 0;
        // Lines that were in the pipe when the process was killed are acknowledged writes, too.
        while lines.read_line(&mut line).unwrap() > 0 {
            if let Some(number) = line.strip_suffix('\n').and_then(|line| line.strip_prefix("acknowledged ")) {
                acknowledged.insert(number.parse().unwrap());
                of_round += 1;
            }
            if of_round == 500 {
                child.kill().unwrap();
            }
            line.clear();
        }
        assert!(!child.wait().unwrap().success());
        assert!(of_round >= 500, "round {round}: {of_round}");
    }
    let there = numbers(&open(folder.path()));
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert_eq!(lost, [0_i64; 0].iter().collect::<Vec<_>>());
}

/// Adds numbers that follow those of earlier processes, on many tasks, and prints each once it is acknowledged.
fn write_until_killed(folder: &Path) -> ! {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _in_runtime = runtime.enter();
    let db = Arc::new(open(folder));
    let next = Arc::new(AtomicI64::new(numbers(&db).last().map_or(0, |last| last + 1)));
    let mut writers = JoinSet::new();
    for kind in 0..32 {
        let (db, next) = (Arc::clone(&db), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let write = move |conn: &sqlite_group_commit::WriteConnection<'_>| {
                    conn.execute(ADD, [number])?;
                    Ok(conn.last_insert_rowid())
                };
                match kind % 2 {
                    0 => db.add_row(Number(number)).await,
                    _ => db.submit(Atomicity::Savepoint, Effect::Any, write).await,
                }
                .unwrap();
                // A child that nobody reads any longer ends.
                if writeln!(std::io::stdout(), "acknowledged {number}").is_err() {
                    std::process::exit(1);
                }
            }
        });
    }
    // Reached if a write fails, or if nobody kills this process.
    let _ = runtime.block_on(async { timeout(TIMEOUT, writers.join_next()).await });
    std::process::exit(1);
}

/// A folder with copies of the files at one moment, and the acknowledged writes.
struct Moment {
    copies: PathBuf,
    numbers: BTreeSet<i64>,
}

impl Moment {
    fn copy(&self, file: &str) -> PathBuf {
        self.copies.join(file)
    }

    fn files(&self) -> [Option<PathBuf>; 4] {
        FILES.map(|file| Some(self.copy(file)))
    }
}

/// A running database, and the copies of its files.
struct Copied {
    dir: PathBuf,
    db: Database,
    moments: Vec<Moment>,
}

impl Copied {
    fn open(dir: PathBuf) -> Self {
        // Every few writes, the log restarts.
        let db = open_with(&dir, &Options { checkpoint_pages: 8, ..Options::default() });
        Self { dir, db, moments: Vec::new() }
    }

    async fn add(&self, count: usize) {
        for _ in 0..count {
            let next = numbers(&self.db).last().map_or(1, |last| last + 1);
            self.db.add_row(Number(next)).await.unwrap();
        }
    }

    /// Copies the files as a process that is killed now would leave them. The caller ensures that no process writes to them.
    fn copy(&mut self, numbers: BTreeSet<i64>) {
        let copies = self.dir.with_extension(self.moments.len().to_string());
        fs::create_dir(&copies).unwrap();
        // By another process, because closing a file ends this one's locks on it.
        let mut command = Command::new("cp");
        command.args(FILES.map(|file| self.dir.join(file)).iter().filter(|file| file.exists())).arg(&copies);
        assert!(command.status().unwrap().success());
        self.moments.push(Moment { copies, numbers });
    }

    /// Copies the files while another program holds the lock for writes.
    fn copy_between_writes(&mut self) {
        let other = outside(&self.dir);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.copy(numbers(&self.db));
    }

    /// Adds rows, and copies the files once the last commit is recorded.
    async fn copy_after(&mut self, count: usize) {
        self.add(count).await;
        until(async || fs::read_to_string(self.dir.join("test.lock")).unwrap().contains(&last_commit(&self.dir))).await;
        self.copy(numbers(&self.db));
    }

    async fn close(self) -> (PathBuf, Vec<Moment>) {
        self.db.close().await;
        (self.dir, self.moments)
    }
}

/// Returns the last commit of the log, as the record has it (sqlite.org/walformat.html, section 2.1).
fn last_commit(dir: &Path) -> String {
    let index = Command::new("cat").arg(dir.join("test.db-shm")).output().unwrap().stdout;
    let word = |number: usize| <[u8; 4]>::try_from(&index[4 * number..4 * number + 4]).unwrap();
    let [frames, first, second] = [4, 6, 7].map(|number| u32::from_ne_bytes(word(number)));
    let salts = [8, 9].map(|number| u32::from_be_bytes(word(number)));
    format!("log known {frames:08x} {:08x} {:08x} {first:08x} {second:08x}", salts[0], salts[1])
}

#[tokio::test]
async fn start_takes_only_files_that_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let moments = moments(folder.path().join("data")).await;
    takes_only_what_belongs_together(folder.path(), &moments).await;
}

#[tokio::test]
async fn start_beside_another_program_takes_only_files_that_belong() {
    let folder = tempfile::tempdir().unwrap();
    let mut copied = Copied::open(folder.path().join("data"));
    copied.copy_after(1).await;
    let other = outside(&copied.dir);
    for write in [false, true] {
        // The log cannot restart.
        other.execute_batch("BEGIN; SELECT * FROM numbers").unwrap();
        copied.copy_after(20).await;
        other.execute_batch("COMMIT").unwrap();
        if write {
            other.execute(ADD, [1_000]).unwrap();
        }
        copied.copy_after(20).await;
    }
    other.execute_batch("BEGIN; SELECT * FROM numbers").unwrap();
    copied.add(1).await;
    let last = numbers(&copied.db);
    copied.db.close().await;
    copied.copy(last);
    takes_only_what_belongs_together(folder.path(), &copied.moments).await;
}

async fn takes_only_what_belongs_together(folder: &Path, moments: &[Moment]) {
    let (empty, tried) = (folder.join("empty"), folder.join("tried"));
    fs::write(&empty, "").unwrap();
    let (mut taken, mut refused) = (0, 0);
    for (position, last) in moments.iter().enumerate() {
        // Each file is of this moment, of an earlier one, missing, or empty.
        let versions = |file| {
            let earlier = moments[..position].iter().rev().map(move |moment| Some(moment.copy(file)));
            [Some(last.copy(file)), None, Some(empty.clone())].into_iter().chain(earlier)
        };
        let files = || versions("test.db");
        let pairs = files().flat_map(|file| versions("test.db-wal").map(move |log| (file.clone(), log)));
        let all = pairs.map(|(file, log)| (file, log, Some(last.copy("test.lock"))));
        let has_log = fs::metadata(last.copies.join("test.db-wal")).is_ok_and(|log| log.len() > 0);
        let without_lock = files().map(|file| (file, Some(last.copy("test.db-wal")), None)).filter(|_| has_log);
        for (place, (file, log, lock)) in all.chain(without_lock).enumerate() {
            // The index can be made again, so no start needs it.
            let index = if (place + position) % 2 == 0 { Some(last.copy("test.db-shm")) } else { None };
            let what = format!("moment {position}: {file:?} {log:?} {index:?} {lock:?}");
            put(&tried, &[file, log, index, lock.clone()]);
            match start(&tried).await {
                Ok(found) => {
                    assert_eq!(found, last.numbers, "{what}");
                    taken += 1;
                }
                Err(error) => {
                    assert!(place > 0 && matches!(error, Error::Apart { .. }), "{what}: {error:?}");
                    refused += 1;
                    // A refusal changes nothing: with the lock file as it left it, the right files are taken.
                    let right = last.files();
                    put(&tried, if lock.is_some() { &right[..3] } else { &right });
                    assert_eq!(start(&tried).await.unwrap(), last.numbers, "afterwards: {what}");
                }
            }
            fs::remove_dir_all(&tried).unwrap();
        }
    }
    assert!(taken > moments.len() && refused > 10 * moments.len(), "{taken} taken, {refused} refused");
}

/// Returns the copies in their order: of a process that runs, ends, is killed, and loses its file.
async fn moments(dir: PathBuf) -> Vec<Moment> {
    let again = dir.with_extension("again");
    let mut copied = Copied::open(dir);
    copied.copy_after(1).await;
    copied.copy_after(1).await;
    copied.copy_after(20).await;
    let (dir, moments) = copied.close().await;
    let mut copied = Copied { moments, ..Copied::open(dir) };
    copied.copy_between_writes();
    copied.copy_after(0).await;
    copied.copy_after(1).await;
    // The process is killed, and started again.
    let (_, moments) = copied.close().await;
    put(&again, &moments[5].files());
    let mut copied = Copied { moments, ..Copied::open(again) };
    copied.copy_between_writes();
    // The file is taken away.
    let (file, aside) = (copied.dir.join("test.db"), copied.dir.join("aside"));
    copied.add(1).await;
    let last = numbers(&copied.db);
    fs::rename(&file, &aside).unwrap();
    assert!(copied.db.add_row(Number(1_000)).await.is_err());
    until(async || fs::read_to_string(copied.dir.join("test.lock")).unwrap().contains("log until")).await;
    fs::rename(&aside, &file).unwrap();
    copied.copy(last);
    copied.close().await.1
}

/// Puts files into the folder. `None` removes one.
fn put(folder: &Path, files: &[Option<PathBuf>]) {
    fs::create_dir_all(folder).unwrap();
    for (name, file) in FILES.iter().zip(files) {
        let _ = fs::remove_file(folder.join(name));
        if let Some(file) = file.as_ref().filter(|file| file.exists()) {
            fs::copy(file, folder.join(name)).unwrap();
        }
    }
}

/// Opens a database, and returns its rows.
async fn start(dir: &Path) -> Result<BTreeSet<i64>, Error> {
    let db = Database::open(&Folder::new(dir, "test"), &Options::default(), &SCHEMA)?;
    let found = numbers(&db);
    db.close().await;
    Ok(found)
}

/// A killed process leaves a log, without which the file lacks the last writes.
#[tokio::test]
async fn file_without_its_log_is_taken_if_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let killed = &moments(folder.path().join("data")).await[1];
    let tried = folder.path().join("tried");
    put(&tried, &killed.files());
    // Another program writes the log back and removes it.
    let other = outside(&tried);
    other.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0)).unwrap();
    other.close().unwrap();
    assert!(!tried.join("test.db-wal").exists());
    assert!(matches!(start(&tried).await, Err(Error::Apart { .. })));
    fs::write(tried.join("test.lock"), "unchecked").unwrap();
    assert_eq!(start(&tried).await.unwrap(), killed.numbers);
}

#[tokio::test]
async fn restore_replaces_the_files_of_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup.db");
    let moments = moments(folder.path().join("data")).await;
    let (old, killed) = (&moments[0], &moments[5]);
    let tried = Folder::new(folder.path().join("tried"), "test");
    put(tried.dir(), &old.files());
    let db = Database::open(&tried, &Options::default(), &SCHEMA).unwrap();
    for (replace, is_made) in [(false, true), (false, false), (true, true)] {
        let target = Target { file: &backup, replace };
        assert_eq!(db.back_up(target, &SCHEMA, &mut |_, _| true).is_ok(), is_made, "{replace}");
    }
    db.close().await;
    drop(db);
    put(tried.dir(), &killed.files());
    let to = || restore(&backup, &tried, &SCHEMA, true, |_| Ok(()), &mut |_, _| true);
    // Another program may still write to the file.
    let other = outside(tried.dir());
    other.execute(ADD, [0]).unwrap();
    assert!(to().unwrap_err().to_string().contains("is in use"));
    other.close().unwrap();
    // A file and a log that do not belong together.
    put(tried.dir(), &FILES.map(|file| Some(if file == "test.db" { old } else { killed }.copy(file))));
    until(async || to().is_ok()).await;
    for file in ["test.db-wal", "test.db-shm"] {
        assert!(!tried.dir().join(file).exists(), "{file}");
    }
    fs::copy(killed.copies.join("test.db-wal"), tried.dir().join("test.db-wal")).unwrap();
    assert!(matches!(start(tried.dir()).await, Err(Error::Apart { .. })));
    fs::remove_file(tried.dir().join("test.db-wal")).unwrap();
    assert_eq!(start(tried.dir()).await.unwrap(), old.numbers);
}

/// As `cp` makes them of a running database.
#[tokio::test]
async fn restore_takes_the_files_of_a_database_if_a_start_would() {
    let folder = tempfile::tempdir().unwrap();
    let moments = moments(folder.path().join("data")).await;
    let (old, killed) = (&moments[0], &moments[5]);
    let (copied, restored) = (folder.path().join("copied"), Folder::new(folder.path().join("restored"), "test"));
    let to = |replace| restore(&copied.join("test.db"), &restored, &SCHEMA, replace, |_| Ok(()), &mut |_, _| true);
    put(&copied, &FILES.map(|file| Some(if file == "test.db" { old } else { killed }.copy(file))));
    let refused = to(false).unwrap_err().to_string();
    assert!(refused.contains("it is not the file that was here"), "{refused}");
    put(&copied, &killed.files());
    to(false).unwrap();
    assert_eq!(start(restored.dir()).await.unwrap(), killed.numbers);
    // Without the other files, nothing can be told.
    put(&copied, &[Some(old.copy("test.db")), None, None, None]);
    for _ in 0..2 {
        to(true).unwrap();
    }
}

#[tokio::test]
async fn full_log_rejects_writes_until_another_program_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { checkpoint_pages: 4, wal_pages: 16, ..Options::default() };
    let db = open_with(folder.path(), &options);
    let add = async |number| db.add_row(Number(number)).await;
    add(0).await.unwrap();
    let other = outside(folder.path());
    other.execute_batch("BEGIN; SELECT * FROM numbers").unwrap();
    let mut added = 1;
    let full = loop {
        match add(added).await {
            Ok(_) => added += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(full.contains("the write-ahead log is full"), "{full}");
    assert!((4..=16).contains(&added), "{added}");
    other.execute_batch("COMMIT").unwrap();
    until(async || add(added).await.is_ok()).await;
    assert_eq!(numbers(&db), (0..=added).collect());
}

/// Only a write that waits for another process takes those along that are queued behind it.
#[tokio::test]
async fn slow_failure_is_of_its_own_batch() {
    let folder = tempfile::tempdir().unwrap();
    let busy_timeout = Duration::from_millis(50);
    let db = open_with(folder.path(), &Options { busy_timeout, ..Options::default() });
    let refused = db.submit(Atomicity::Batch, Effect::Any, |_| {
        std::thread::sleep(Duration::from_millis(500));
        Err::<(), _>(Error::Refused("a slow decision".into()))
    });
    let queued = async {
        until(async || db.queued() == Some(0)).await;
        db.add_row(Number(1)).await
    };

    let (refused, written) = tokio::join!(refused, queued);

    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    written.unwrap();
}
