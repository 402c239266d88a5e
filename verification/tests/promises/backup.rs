//! Promise 31: a backup taken under writes restores, and a killed one leaves no file under the backup's name.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Database, Random, Server, Shop, succeed, trial};
use verification::writers::Mix;
use verification::{Differences, Ledger, Writers};

#[test]
fn backup_under_writes_restores_or_leaves_nothing() {
    let (rounds, mut random) = (trial::rounds(5), Random::from_seed());
    let files = Files { folder: tempfile::tempdir().unwrap() };
    let Shop { database, key } = Shop::on_sqlite();
    let ledger = Ledger::default();
    let service = database.serve();
    let (mut killed, mut unfinished, mut settled) = (0, 0, 0);
    let mut took = Duration::from_millis(100);
    let mut round = 0;
    // Continues until as many backups were killed while they wrote.
    while round < rounds || unfinished < rounds {
        round += 1;
        assert!(round <= rounds * 5, "{unfinished} of {round} kills hit a backup while it was written");
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), Mix::MIXED);
        random.sleep(20..120);

        // This backup is killed. If the kill comes too late, the backup must be complete.
        let before = ledger.acknowledgements();
        let mut backup = files.backup(&database).spawn().unwrap();
        match round % 2 {
            0 => thread::sleep(Duration::from_micros(random.below(took.as_micros() as u64))),
            // As soon as it writes: a random moment seldom hits that if a process starts slowly.
            _ => while files.unfinished() == 0 && !files.file().exists() && backup.try_wait().unwrap().is_none() {},
        }
        backup.kill().unwrap();
        backup.wait().unwrap();
        if files.file().exists() {
            files.restore(&ledger.as_of(before)).assert_no_violation();
            files.clear();
        } else {
            killed += 1;
            unfinished += files.unfinished();
        }

        let (before, began) = (ledger.acknowledgements(), Instant::now());
        succeed(&mut files.backup(&database));
        took = began.elapsed();
        assert_eq!(files.unfinished(), 0, "the next backup removes unfinished files");
        load.stop();
        let differences = files.restore(&ledger.as_of(before));
        differences.assert_no_violation();
        settled += differences.settled;
        files.clear();
    }
    assert_eq!(ledger.unavailable(), 0, "a backup rejects no write");
    let lost = lost_without_the_log(&database, &service, &key, &ledger);
    trial::measured(&format!(
        "{round} backups under writes, each restored with all that was acknowledged before it ({settled} later ones \
         besides), 0 lost, {ledger}; {killed} killed before their end, {unfinished} of them while they wrote: no unfinished \
         file under the backup's name, nothing left by the next; a copy without the log loses {lost}"
    ));
}

/// Control: a copy of the database file without its log. Returns the loss in words.
fn lost_without_the_log(database: &Database, service: &Server, key: &str, ledger: &Ledger) -> String {
    assert_eq!(ledger.create_pet(service, key, "the last one").status(), 201);
    let copy = Database::temporary();
    fs::copy(database.file("petstore.db"), copy.file("petstore.db")).unwrap();
    match ledger.try_compare(&copy) {
        Err(_) => "all, because it is corrupt".into(),
        Ok(differences) => {
            assert!(differences.lost.contains(&"the last one".to_owned()), "the log does not matter");
            format!("{} of them", differences.lost.len())
        }
    }
}

/// A folder with the backup and the database restored from it.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn file(&self) -> PathBuf {
        self.folder.path().join("backup.db")
    }

    fn restored(&self) -> Database {
        Database::folder(&self.folder.path().join("restored"))
    }

    fn backup(&self, database: &Database) -> Command {
        let mut command = database.petstore("backup");
        command.arg(self.file()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Restores the backup and compares it with `ledger`.
    fn restore(&self, ledger: &Ledger) -> Differences {
        succeed(self.restored().petstore("restore").arg(self.file()));
        ledger.compare(&self.restored())
    }

    /// Removes the backup and the restored database.
    fn clear(&self) {
        fs::remove_file(self.file()).unwrap();
        fs::remove_dir_all(self.restored().data_dir()).unwrap();
    }

    fn unfinished(&self) -> u32 {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "partial")).count() as u32
    }
}
