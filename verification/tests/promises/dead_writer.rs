//! Promise 34: a panic of the writer ends the process, and no waiting client is left without a response.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, FromArgMatches};
use petstore::config::ServiceSettings;
use petstore::store::sqlite::{Options, Sqlite};
use petstore::store::{PetSource, Store};
use petstore::telemetry::{LogFormat, LogLevel};
use testkit::{Random, Server, Shop, TIMEOUT, trial, within};
use tokio::sync::mpsc::unbounded_channel;
use verification::writers::Mix;
use verification::{Ledger, Writers};

use crate::sync_error::ended_and_was_not_ready;

/// The data directory, set if this test binary runs as the service.
const SERVICE: &str = "PETSTORE_TEST_SERVICE";

const NAME: &str = "dead_writer::panic_of_the_writer_ends_the_process";

#[test]
fn panic_of_the_writer_ends_the_process() {
    if let Some(folder) = std::env::var_os(SERVICE) {
        serve(Path::new(&folder));
    }
    let (rounds, mut random) = (trial::rounds(3), Random::from_seed());
    let (mut unavailable, mut acknowledged) = (0, 0);
    for round in trial::counted(rounds) {
        let Shop { database, key } = Shop::on_sqlite();
        let ledger = Ledger::default();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact", "--nocapture"]).env(SERVICE, database.data_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut service = Server::start(command);
        // Control: a write that fails without a panic ends nothing.
        writeln!(service.input(), "fail").unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(ledger.create_pet(&service, &key, "after the failure").status(), 201);
        within(Duration::from_secs(1), "readiness", || service.get("/readyz", &key).status() == 200);

        let load = Writers::start(&service, &key, &ledger, "load", Mix::MIXED);
        random.sleep(50..250);
        // The writer hangs within a write until all clients wait for it.
        writeln!(service.input(), "hang").unwrap();
        let in_flight = || service.metric("petstore_http_requests_in_flight") as usize;
        within(TIMEOUT, "waiting for the writer", || in_flight() == Mix::MIXED.clients + 1);
        let waiting = ledger.unanswered();
        writeln!(service.input(), "panic").unwrap();
        let status = ended_and_was_not_ready(&mut service, &ledger);
        load.join();
        assert_eq!(status, Some(1), "round {round}");
        let left = ledger.unanswered();
        // The service answers them for a second, which may be too short on a busy machine.
        assert!(waiting.is_disjoint(&left) || !trial::is_full(), "some got no response: {waiting:?}, {left:?}");
        ledger.compare(&database).assert_nothing_refused_is_there();
        unavailable += ledger.unavailable();
        acknowledged += ledger.acknowledged();
    }
    assert!(unavailable >= rounds as usize, "no client waited for the writer: little was tested");
    trial::measured(&format!(
        "{rounds} panics: exit status 1 each time, not ready from the first 503 on, every waiting client answered \
         ({unavailable} with 503, none of their writes there), {acknowledged} acknowledged, 0 lost; after a write that fails \
         without a panic the service continues"
    ));
}

/// The next line on stdin.
fn next_line() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().read_line(&mut line).unwrap() > 0).then_some(line)
}

/// Runs the service like `petstore serve`, with a writer that fails, or hangs and panics, when a line on stdin says so.
fn serve(folder: &Path) -> ! {
    petstore::telemetry::start(LogLevel::Info, LogFormat::Auto);
    let arguments = ["serve", "--listen=127.0.0.1:0", "--messages-listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"];
    let matches = ServiceSettings::augment_args(clap::Command::new("serve")).get_matches_from(arguments);
    let service = ServiceSettings::from_arg_matches(&matches).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        let store = Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder)).unwrap()));
        let (failing, runtime) = (Arc::clone(&store), tokio::runtime::Handle::current());
        thread::spawn(move || {
            while let Some(line) = next_line() {
                // An import reads its animals within the write.
                let source: PetSource = match line.as_str() {
                    "hang\n" => Box::new(std::iter::from_fn(|| panic!("a bug within a write: {:?}", next_line()))),
                    _ => Box::new(std::iter::once(Err("failed".to_owned()))),
                };
                assert!(runtime.block_on(failing.import_pets(source)).is_err());
            }
        });
        // Open until the end.
        let (_stop, stops) = unbounded_channel();
        petstore::app::start(&service, store, stops, async |_, _| Ok(())).await?.await
    });
    std::process::exit(i32::from(outcome.is_err()))
}
