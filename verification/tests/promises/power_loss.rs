//! Promise 3: a power loss destroys no acknowledged write.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use testkit::{Database, Random, TIMEOUT, trial, within};
use verification::trace::{self, Call, Disk};
use verification::volume::Volume;
use verification::writers::Mix;
use verification::{Ledger, Writers};

/// Images per recording.
const IMAGES: u32 = 40;

/// Large messages fill the write-ahead log soon.
const MIX: Mix = Mix { clients: 8, messages_one_in: 2, length: 9_000, keyed: false };

/// Acknowledged writes until a process ends: enough to open, close and reopen the database.
const FEW: usize = 150;

/// Enough for checkpoints under load.
const MANY: usize = 2_500;

/// A recording of everything that processes wrote to the disk and acknowledged to clients. Times are positions in it.
struct Recording {
    volume: Volume,
    /// Time, name and id of each acknowledgement.
    acknowledged: Vec<(usize, String, String)>,
    /// Time at which the API key was printed.
    key_printed: usize,
    end: usize,
    ledger: Ledger,
    checkpoints: usize,
}

#[test]
fn power_loss_loses_no_acknowledged_write() {
    let (rounds, mut random) = (trial::rounds(15), Random::from_seed());
    let (mut images, mut writes, mut checkpoints, mut recordings) = (0, 0, 0, 0);
    while images < rounds {
        recordings += 1;
        let recording = Recording::new(if recordings % 4 == 0 { MANY } else { FEW }, Disk::Honest);
        for _ in 0..IMAGES.min(rounds - images) {
            images += 1;
            recording.lose_power(&mut random).unwrap_or_else(|loss| panic!("image {images}: {loss}"));
        }
        writes += recording.acknowledged.len();
        checkpoints += recording.checkpoints;
        println!("{images} of {rounds} images: nothing lost");
    }
    let control = Recording::new(FEW, Disk::LyingFrom(1));
    let harmed = (0..IMAGES).filter(|_| control.lose_power(&mut random).is_err()).count();
    assert!(harmed > 0, "without syncs, images must lose writes");
    trial::measured(&format!(
        "{images} images of {recordings} databases with {writes} acknowledged writes and {checkpoints} checkpoints, \
         0 acknowledged lost, each intact; if syncs report success without being done, {harmed} of {IMAGES} images lose some"
    ));
}

impl Recording {
    fn new(acknowledged: usize, disk: Disk) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("disk");
        fs::create_dir(&root).unwrap();
        let database = Database::folder(&root.join("store"));
        let file = folder.path().join("trace");
        let (mut calls, ledger) = (Vec::new(), Ledger::default());

        run(&database, "account create ada@example.com", &file, disk, &mut calls);
        let key = run(&database, "key create --account ada@example.com --name test", &file, disk, &mut calls);
        let key_printed = calls.last().unwrap().begun;
        // The first process empties the log at its end. The second one is killed.
        for (name, acknowledged, clean) in [("first", acknowledged, true), ("second", acknowledged + FEW, false)] {
            let mut service = database.serve_by(trace::recorder(&file, disk));
            let load = Writers::start(&service, &key, &ledger, name, MIX);
            within(TIMEOUT * 4, "acknowledgements", || ledger.acknowledged() >= acknowledged);
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
        let checkpoints = calls.iter().filter(|call| call.is_sync() && call.file == database_file).count();
        let end = calls.last().unwrap().begun;
        Self { volume: Volume::record(&root, calls), acknowledged, key_printed, end, ledger, checkpoints }
    }

    /// Cuts the power at a random time. Fails with a description of the loss.
    fn lose_power(&self, random: &mut Random) -> Result<(), String> {
        let at = random.below(self.end as u64 + 1) as usize;
        let image = tempfile::tempdir().unwrap();
        self.volume.image(at, random, image.path());
        let acknowledged = self.acknowledged.iter().filter(|(time, ..)| *time <= at);
        let acknowledged: HashMap<_, _> = acknowledged.map(|(_, name, id)| (name.clone(), id.clone())).collect();
        let store = image.path().join("store");
        if at < self.key_printed && !store.join("petstore.db").exists() {
            return Ok(());
        }
        let place = format!("at {at} of {}, with {} acknowledged", self.end, acknowledged.len());
        let loss = |what: &str| Err(format!("{place}: {what}"));
        let database = Database::folder(&store);
        let opened = database.petstore("pets export").output().unwrap();
        if at >= self.key_printed {
            if !opened.status.success() {
                return loss(&String::from_utf8_lossy(&opened.stderr));
            }
            if database.try_sql("SELECT count(*) FROM api_keys").as_deref() != Ok("1") {
                return loss("the key is lost");
            }
        }
        if acknowledged.is_empty() {
            return Ok(());
        }
        self.ledger.as_of(acknowledged).try_compare(&database)?.violation().map_or(Ok(()), |violation| loss(&violation))
    }
}

/// Runs a command under strace, appends its calls and returns what it prints.
fn run(database: &Database, command: &str, file: &Path, disk: Disk, calls: &mut Vec<Call>) -> String {
    let mut command = database.petstore_by(trace::recorder(file, disk), command);
    let process = command.stdout(Stdio::piped()).spawn().unwrap();
    let id = process.id();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    append(calls, trace::read(file, id));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Appends the calls of the next process, with later times.
fn append(calls: &mut Vec<Call>, more: Vec<Call>) {
    let end = calls.iter().map(|call| call.ended.unwrap_or(call.begun)).max().map_or(0, |last| last + 1);
    calls.extend(more.into_iter().map(|call| Call {
        begun: call.begun + end,
        ended: call.ended.map(|ended| ended + end),
        ..call
    }));
}
