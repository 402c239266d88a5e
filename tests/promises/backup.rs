//! Promise 31: a live backup restores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use testkit::writers::Mix;
use testkit::{Database, Differences, Ledger, Random, Server, Writers, trial};

#[test]
fn backup_under_writes_restores_or_leaves_nothing() {
    let (rounds, mut random) = (trial::rounds(5), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let place = Place(folder.path().to_owned());
    let database = Database::folder(&place.data());
    let (key, ledger) = (database.make_key(), Ledger::default());
    let service = database.serve();
    let (mut killed, mut halves, mut settled) = (0, 0, 0);
    let mut took = Duration::from_millis(100);
    let mut round = 0;
    // Until as many were killed while they wrote, as well.
    while round < rounds || halves < rounds {
        round += 1;
        assert!(round <= rounds * 5, "{halves} of {round} kills came while a backup was written");
        let load = Writers::start(&service, &key, &ledger, &round.to_string(), Mix::MIXED);
        thread::sleep(Duration::from_millis(20 + random.below(100)));

        // One that is killed. Where the kill came too late, the backup is there, and then it is whole.
        let before = ledger.acknowledgements();
        let mut backup = place.backup(&database).spawn().unwrap();
        match round % 2 {
            0 => thread::sleep(Duration::from_micros(random.below(u64::try_from(took.as_micros()).unwrap()))),
            // As soon as it writes, which a random moment seldom is where a process takes long to begin.
            _ => while place.unfinished() == 0 && !place.file().exists() && backup.try_wait().unwrap().is_none() {},
        }
        backup.kill().unwrap();
        backup.wait().unwrap();
        if place.file().exists() {
            place.restored(&ledger.as_of(before)).assert_as_told();
            place.clear();
        } else {
            killed += 1;
            halves += place.unfinished();
        }

        // One that comes to its end.
        let (before, began) = (ledger.acknowledgements(), Instant::now());
        let made = place.backup(&database).output().unwrap();
        took = began.elapsed();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(place.unfinished(), 0, "what was left is swept up");
        load.stop();
        let differences = place.restored(&ledger.as_of(before));
        differences.assert_as_told();
        settled += differences.settled;
        place.clear();
        if round % 10 == 0 {
            println!("round {round} of {rounds}: {ledger}; {killed} killed, {halves} of them while they wrote");
        }
    }
    assert_eq!(ledger.unavailable(), 0, "no write is refused for a backup");
    let lost = without_the_log(&service, &key, &ledger, &place);
    trial::measured(&format!(
        "{round} backups under writes, each restored with all that was acknowledged before it ({settled} later ones \
         besides), 0 lost, {ledger}; {killed} killed before their end, {halves} of them while they wrote: no half file, \
         nothing left by the next; a copy without the log loses {lost}"
    ));
}

/// The control: the database's file copied as it lies there, without its log. Says how many acknowledged it lacks.
fn without_the_log(service: &Server, key: &str, ledger: &Ledger, place: &Place) -> String {
    assert_eq!(ledger.create_pet(service, key, "the last one").status, 201);
    let bare = place.0.join("bare");
    fs::create_dir(&bare).unwrap();
    fs::copy(place.data().join("petstore.db"), bare.join("petstore.db")).unwrap();
    match ledger.try_compare(&bare) {
        Err(_) => "all, for it is broken".into(),
        Ok(differences) => {
            assert!(differences.lost.contains(&"the last one".to_owned()), "the log does not matter");
            format!("{} of them", differences.lost.len())
        }
    }
}

/// Where things are: the data, the backup, and what is restored from it.
struct Place(PathBuf);

impl Place {
    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn file(&self) -> PathBuf {
        self.0.join("there.db")
    }

    fn backup(&self, database: &Database) -> std::process::Command {
        let mut command = database.petstore("backup");
        command.arg(self.file()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// How what is restored from the backup differs from what it must be.
    fn restored(&self, ledger: &Ledger) -> Differences {
        let folder = self.0.join("restored");
        let made = Database::folder(&folder).petstore("restore").arg(self.file()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        ledger.compare(&folder)
    }

    /// Makes room for the next.
    fn clear(&self) {
        fs::remove_file(self.file()).unwrap();
        fs::remove_dir_all(self.0.join("restored")).unwrap();
    }

    fn unfinished(&self) -> u32 {
        let is_unfinished = |path: &Path| path.extension().is_some_and(|extension| extension == "partial");
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| is_unfinished(path)).count().try_into().unwrap()
    }
}
