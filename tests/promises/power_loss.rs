//! Promise 3: a power loss takes nothing that was acknowledged.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use testkit::writers::Mix;
use testkit::{Database, Ledger, Random, TIMEOUT, Writers, trial, within};

use crate::trace::{self, Call, Disk};
use crate::volume::Volume;

/// How many images are made of what one life of a database wrote.
const IMAGES: u32 = 40;

/// Large messages fill the write-ahead log soon.
const KIND: Mix = Mix { clients: 8, messages_one_in: 2, length: 9_000, keyed: false };

/// Enough for a database that is opened, written to, closed and written to again.
const FEW: usize = 150;

/// Enough for the write-ahead log to be written back under load.
const MANY: usize = 2_500;

/// The life of a database: everything that was written to the disk, and what clients were told.
struct Life {
    volume: Volume,
    /// When each name was acknowledged, and its id.
    acknowledged: Vec<(usize, String, String)>,
    /// From when on a key is known to its owner.
    key_known: usize,
    end: usize,
    ledger: Ledger,
    /// How often the log was written back.
    written_back: usize,
}

#[test]
fn power_loss_loses_no_acknowledged_write() {
    let (rounds, mut random) = (trial::rounds(15), Random::from_seed());
    let (mut images, mut writes, mut written_back, mut lives) = (0, 0, 0, 0);
    while images < rounds {
        lives += 1;
        let life = Life::record(if lives % 4 == 0 { MANY } else { FEW }, Disk::Honest);
        for _ in 0..IMAGES.min(rounds - images) {
            images += 1;
            if let Err(wrong) = life.lose_power(&mut random) {
                panic!("image {images}: {wrong}");
            }
        }
        writes += life.acknowledged.len();
        written_back += life.written_back;
        println!("{images} of {rounds} images: nothing lost");
    }
    let control = Life::record(FEW, Disk::Lying);
    let harmed = (0..IMAGES).filter(|_| control.lose_power(&mut random).is_err()).count();
    assert!(harmed > 0, "without syncs something must be lost");
    trial::measured(&format!(
        "{images} images of {lives} databases with {writes} acknowledged writes and {written_back} checkpoints, \
         0 acknowledged lost, each whole; where syncs are not carried out, {harmed} of {IMAGES} images lose some"
    ));
}

impl Life {
    fn record(answers: usize, disk: Disk) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("disk");
        fs::create_dir(&root).unwrap();
        let database = Database::folder(&root.join("store"));
        let file = folder.path().join("trace");
        let (mut calls, ledger) = (Vec::new(), Ledger::default());

        run(&database, "account create ada@example.com", &file, disk, &mut calls);
        let key = run(&database, "key create --account ada@example.com --name test", &file, disk, &mut calls);
        let key_known = calls.last().unwrap().begun;
        // Closed by itself, so that the log is written back and removed; then made again, and cut off.
        for (name, answers, clean) in [("first", answers, true), ("second", answers + FEW, false)] {
            let mut service = database.serve_by(trace::recorder(&file, disk));
            let load = Writers::start(&service, &key, &ledger, name, KIND);
            within(TIMEOUT * 4, "answering", || ledger.acknowledged() >= answers);
            if clean {
                load.stop();
                service.stop();
            } else {
                service.kill();
                load.join();
            }
            append(&mut calls, trace::read(&file, service.pid()));
        }
        let acknowledgement = |call: &Call| call.acknowledged().map(|(name, id)| (call.begun, name, id));
        let acknowledged = calls.iter().filter_map(acknowledgement).collect();
        let database_file = root.join("store/petstore.db");
        let written_back = calls.iter().filter(|call| call.is_sync() && call.file == database_file).count();
        let end = calls.last().unwrap().begun;
        Self { volume: Volume::record(&root, calls), acknowledged, key_known, end, ledger, written_back }
    }

    /// Ends the life at a random moment, and says what is then wrong with what is left.
    fn lose_power(&self, random: &mut Random) -> Result<(), String> {
        let at = random.below(self.end as u64 + 1) as usize;
        let left = tempfile::tempdir().unwrap();
        self.volume.image(at, random, left.path());
        let told = self.acknowledged.iter().filter(|(when, ..)| *when <= at);
        let told: HashMap<_, _> = told.map(|(_, name, id)| (name.clone(), id.clone())).collect();
        let store = left.path().join("store");
        if at < self.key_known && !store.join("petstore.db").exists() {
            return Ok(());
        }
        let when = format!("at {at} of {}, with {} acknowledged", self.end, told.len());
        let wrong = |what: &str| Err(format!("{when}: {what}"));
        let opened = Database::folder(&store).petstore("pets export").output().unwrap();
        if !opened.status.success() && at >= self.key_known {
            return wrong(&String::from_utf8_lossy(&opened.stderr));
        }
        if at >= self.key_known && !has_key(&store) {
            return wrong("the key is lost");
        }
        if told.is_empty() {
            return Ok(());
        }
        match self.ledger.as_of(told).try_compare(&store)?.wrong() {
            Some(what) => wrong(&what),
            None => Ok(()),
        }
    }
}

/// Runs a command under strace: what it printed.
fn run(database: &Database, command: &str, file: &Path, disk: Disk, calls: &mut Vec<Call>) -> String {
    let mut command: Command = database.petstore_by(trace::recorder(file, disk), command);
    let process = command.stdout(Stdio::piped()).spawn().unwrap();
    let id = process.id();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    append(calls, trace::read(file, id));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Puts what a process did after what those before it did.
fn append(calls: &mut Vec<Call>, more: Vec<Call>) {
    let end = calls.iter().map(|call| call.ended.unwrap_or(call.begun)).max().map_or(0, |last| last + 1);
    calls.extend(more.into_iter().map(|call| Call {
        begun: call.begun + end,
        ended: call.ended.map(|ended| ended + end),
        ..call
    }));
}

fn has_key(store: &Path) -> bool {
    let keys = Connection::open(store.join("petstore.db"))
        .and_then(|conn| conn.query_row("SELECT count(*) FROM api_keys", [], |row| row.get::<_, i64>(0)));
    keys.is_ok_and(|keys| keys == 1)
}
