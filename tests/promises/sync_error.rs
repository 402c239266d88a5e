//! Promise 12: a sync that fails is fatal, and nothing is acknowledged by it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::writers::Mix;
use testkit::{Database, Ledger, Random, Server, TIMEOUT, Writers, trial, within};

use crate::sync_order;
use crate::trace::{self, Disk};

/// Large messages: a checkpoint comes soon.
const LARGE: Mix = Mix { clients: 16, messages_one_in: 1, length: 10_000, keyed: false };

const NAME: &str = "sync";

#[test]
fn failed_sync_ends_the_process() {
    let (rounds, mut random) = (trial::rounds(4), Random::from_seed());
    let (mut of_checkpoints, mut unavailable, mut settled) = (0, 0, 0);
    for round in 1..=rounds {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let database = Database::folder(&store);
        let (key, ledger, file) = (database.make_key(), Ledger::default(), folder.path().join("trace"));
        // In one round of four it is the sync of the database file, at a checkpoint.
        let checkpoint = round % 4 == 0;
        let strace = match checkpoint {
            true => fails_at_checkpoint(&file, &store),
            false => trace::recorder(&file, Disk::Failing(4 + random.below(50))),
        };
        let mut service = database.serve_by(strace);
        let load = Writers::start(&service, &key, &ledger, NAME, if checkpoint { LARGE } else { Mix::MIXED });
        let status = ended_and_was_not_ready(&mut service, &ledger);
        load.join();
        assert_eq!(status, Some(1), "round {round}");
        if checkpoint {
            of_checkpoints += 1;
        } else {
            let order = sync_order::order(&trace::read(&file, service.pid()), &store.join("petstore.db-wal"));
            assert_eq!(order.not_before, 0, "round {round}: false acknowledgements");
        }

        // What is there afterwards is what was told, and the service goes on with it.
        let mut again = database.serve();
        assert_eq!(again.create_pet(&key, "again").status, 201);
        ledger.sent("again");
        again.stop();
        let differences = ledger.compare(&store);
        differences.assert_as_told();
        unavailable += ledger.unavailable();
        settled += differences.unavailable.len();
        println!("round {round} of {rounds}: {ledger}");
    }
    assert!(unavailable > 0, "nobody waited for the sync that failed: the test has tested little");
    let control = without_an_error();
    assert!(control > 0, "an error that nobody hears of must be noticed");
    trial::measured(&format!(
        "{rounds} failed syncs, {of_checkpoints} of them of checkpoints: 0 false 201, 0 lost, never ready afterwards, \
         exit status 1 each time; {unavailable} were told 503, of which {settled} are there; where ten syncs report \
         success and are not carried out, {control} false 201"
    ));
}

/// The one sync of the database file that comes first.
fn fails_at_checkpoint(file: &Path, store: &Path) -> std::process::Command {
    let mut strace = trace::strace(file);
    strace.arg("-P").arg(store.join("petstore.db"));
    strace.args(["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"]);
    strace
}

/// Waits for the exit status. From the first 503 on, no answer may say that the service is ready.
pub fn ended_and_was_not_ready(service: &mut Server, ledger: &Ledger) -> Option<i32> {
    let (over, address) = (AtomicBool::new(false), service.store.clone());
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut ready: Vec<Instant> = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let asked = Instant::now();
                if testkit::blocking::try_get(&address, "/readyz").is_some_and(|answer| answer.status == 200) {
                    ready.push(asked);
                }
                thread::sleep(Duration::from_millis(1));
            }
            ready
        });
        let status = service.ended(TIMEOUT * 2);
        over.store(true, Ordering::SeqCst);
        let ready = watcher.join().unwrap();
        if let Some(since) = ledger.unavailable_since() {
            assert!(ready.iter().all(|asked| *asked < since), "ready after a write was told that its sync failed");
        }
        status.code()
    })
}

/// The control: syncs that are not carried out and report success. How many were told that their write is safe. Several
/// in a row, since an answer that is slow on its way may come after the next sync, which covers its write as well.
fn without_an_error() -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let database = Database::folder(&store);
    let (key, ledger, file) = (database.make_key(), Ledger::default(), folder.path().join("trace"));
    let mut service = database.serve_by(trace::recorder(&file, Disk::LyingFor10(20)));
    let load = Writers::start(&service, &key, &ledger, NAME, Mix::MIXED);
    within(TIMEOUT, "answering", || ledger.acknowledged() > 32 * 40);
    load.stop();
    service.stop();
    sync_order::order(&trace::read(&file, service.pid()), &store.join("petstore.db-wal")).not_before
}
