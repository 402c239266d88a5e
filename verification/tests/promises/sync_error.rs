//! Promise 12: a failed sync ends every process on the database, and no write that it covers is acknowledged.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Database, Random, Request, Server, Stop, TIMEOUT, trial};
use verification::trace::{self, Disk};
use verification::writers::Mix;
use verification::{Ledger, Writers};

use crate::sync_order;

/// Large messages cause a checkpoint soon.
const LARGE: Mix = Mix { clients: 16, messages_one_in: 1, length: 10_000, keyed: false };

const NAME: &str = "sync";

#[test]
fn failed_sync_ends_the_process() {
    let (rounds, mut random) = (trial::rounds(4), Random::from_seed());
    let (mut of_checkpoints, mut unavailable, mut settled) = (0, 0, 0);
    for round in trial::counted(rounds) {
        let (database, trace) = (Database::temporary(), tempfile::NamedTempFile::new().unwrap());
        let (key, ledger) = (database.make_key(), Ledger::default());
        // In one round of four, the sync of the database file fails, at a checkpoint.
        let checkpoint = round % 4 == 0;
        let strace = match checkpoint {
            true => failing_at_checkpoint(trace.path(), &database, 3 + random.below(2)),
            false => trace::recorder(trace.path(), Disk::Failing(4 + random.below(50))),
        };
        let mut neighbour = database.serve();
        let mut service = database.serve_by(strace);
        let load = Writers::start(&service, &key, &ledger, NAME, if checkpoint { LARGE } else { Mix::MIXED });
        let status = ended_and_was_not_ready(&mut service, &ledger);
        load.join();
        assert_eq!(status, Some(1), "round {round}");
        // It would rely on pages that the disk may have lost.
        assert_eq!(neighbour.ended(TIMEOUT).code(), Some(1), "round {round}: another process continues");
        if checkpoint {
            of_checkpoints += 1;
        } else {
            let order = sync_order::of(&database, &trace::read(trace.path(), service.pid()));
            assert_eq!(order.not_before, 0, "round {round}: false acknowledgements");
        }

        // A new process continues with exactly the acknowledged writes.
        let mut again = database.serve();
        assert_eq!(again.create_pet(&key, "again").status(), 201);
        ledger.sent("again");
        again.stop();
        let differences = ledger.compare(&database);
        differences.assert_no_violation();
        // A commit that came back would be read from memory: the disk may not have it.
        assert!(checkpoint || differences.unavailable.is_empty(), "round {round}: a failed commit came back");
        unavailable += ledger.unavailable();
        settled += differences.unavailable.len();
    }
    assert!(unavailable > 0, "no client waited for a failed sync: little was tested");
    // All syncs from the 20th on. With only ten missing, all responses may follow the next sync, which covers their writes.
    let control = sync_order::observe(32 * 40, Disk::LyingFrom(20), Mix::MIXED).not_before;
    assert!(control > 0, "missing syncs without an error must be noticed");
    trial::measured(&format!(
        "{rounds} failed syncs, {of_checkpoints} of them of checkpoints: 0 false 201, 0 lost, never ready afterwards, \
         exit status 1 each time; {unavailable} got a 503, {settled} of them are there; if syncs report \
         success without being done, {control} false 201"
    ));
}

/// Makes the sync of the database file with this number fail in each thread. The first two may be of the start.
fn failing_at_checkpoint(trace: &Path, database: &Database, which: u64) -> Command {
    let mut strace = trace::strace(trace);
    strace.arg("-P").arg(database.file("petstore.db"));
    strace.args(["-e", "trace=fdatasync", "-e", &format!("inject=fdatasync:error=EIO:when={which}")]);
    strace
}

/// Waits for the exit status. Asserts that the service is not ready from the first 503 on.
pub fn ended_and_was_not_ready(service: &mut Server, ledger: &Ledger) -> Option<i32> {
    let (stop, request) = (Stop::new(), Request::new(service.store(), "GET", "/readyz"));
    thread::scope(|scope| {
        let stop_on_drop = stop.on_drop();
        let watcher = scope.spawn(|| {
            let mut ready: Vec<Instant> = Vec::new();
            while !stop.is_requested() {
                let sent = Instant::now();
                if request.try_send_blocking().is_ok_and(|response| response.status() == 200) {
                    ready.push(sent);
                }
                thread::sleep(Duration::from_millis(1));
            }
            ready
        });
        let status = service.ended(TIMEOUT * 2);
        drop(stop_on_drop);
        let ready = watcher.join().unwrap();
        if let Some(since) = ledger.unavailable_since() {
            assert!(ready.iter().all(|sent| *sent < since), "ready after a 503");
        }
        status.code()
    })
}
