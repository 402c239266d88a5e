//! Promise 38, continued: services whose system calls fail. Everything that a service acknowledges or announces is there.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;

use testkit::{
    Database, FREE_PORTS, Random, Request, Response, Server, Shop, Signal, TIMEOUT, new_message, trial, within,
};
use verification::Ledger;
use verification::injected::{Calls, Case, FILES, Fault, SOCKETS, hit_a_wake_up, sample};

/// Number of faults in each service of a short run.
const SHORT: usize = 4;

/// Number of writes in each run.
const WRITES: usize = 8;

#[test]
fn service_acknowledges_nothing_that_a_failing_call_loses() {
    let serve = |strace, trace: &Path| {
        let Shop { database, key } = Shop::on_sqlite();
        let ledger = Ledger::default();
        let code = serve(&database, strace, trace, &key, &ledger, "");
        database.run("account list");
        Served { acknowledged: ledger.acknowledged(), violation: ledger.compare(&database).violation(), code }
    };
    check("a service", &FILES, &std::env::temp_dir().to_string_lossy(), serve);
    loss_is_noticed();
}

#[test]
fn service_on_postgresql_loses_nothing_to_a_failing_call() {
    let Shop { database, key } = Shop::on_postgresql();
    // A write that loses its wake-up waits until then.
    let database = database.with_timeout("30s");
    let (runs, ledger) = (Cell::new(0), Ledger::default());
    let serve = |strace, trace: &Path| {
        runs.set(runs.get() + 1);
        let before = ledger.acknowledged();
        let code = serve(&database, strace, trace, &key, &ledger, &format!("run-{}-", runs.get()));
        let violation = ledger.compare(&database).violation();
        Served { acknowledged: ledger.acknowledged() - before, violation, code }
    };
    check("a service on PostgreSQL", &SOCKETS, "connect(", serve);
    ledger.notices_damage(&database);
}

/// Injects each fault into a run of a service.
fn check(of: &str, calls: &Calls, first: &str, run: impl Fn(Command, &Path) -> Served) {
    let mut random = Random::from_seed();
    let file = tempfile::NamedTempFile::new().unwrap();
    let whole = run(Fault::count(calls, file.path()), file.path());
    assert!(whole.acknowledged == WRITES && whole.code == Some(0), "{whole:?}");
    assert_eq!(whole.violation, None);
    let faults = Fault::all(calls, file.path(), first);
    let all = faults.len();
    let faults = if trial::is_full() { faults } else { sample(faults, SHORT, &mut random) };
    let (mut acknowledged, mut ended) = (0, 0);
    let mut violations = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        let _case = Case(fault.to_string());
        let served = run(fault.strace(file.path()), file.path());
        violations.extend(served.violation.map(|why| format!("{fault}: {why}")));
        acknowledged += served.acknowledged;
        ended += usize::from(served.code != Some(0));
        if number % 100 == 99 {
            println!("{} of {all}: {acknowledged} acknowledged, {} violations", number + 1, violations.len());
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    trial::measured(&format!(
        "{} of {all} faults in {of}: {acknowledged} writes acknowledged, 0 lost, {ended} times the process ended with a \
         status other than 0; a lost row is noticed",
        faults.len(),
    ));
}

#[derive(Debug)]
struct Served {
    acknowledged: usize,
    /// A difference between the ledger and the database.
    violation: Option<String>,
    code: Option<i32>,
}

/// Serves under strace, writes, and stops. Returns the exit status.
fn serve(database: &Database, strace: Command, trace: &Path, key: &str, ledger: &Ledger, run: &str) -> Option<i32> {
    let mut service = start(database, strace, Database::SERVE)?;
    (0..WRITES).for_each(|number| write(&service, key, ledger, &format!("{run}write-{number}"), number));
    // Fails if the process has ended.
    service.signal(Signal::TERM);
    // Without a wake-up, it may not notice the signal.
    within(TIMEOUT * 2, "ending", || service.has_ended() || hit_a_wake_up(trace));
    if !service.has_ended() {
        service.kill();
    }
    service.ended(TIMEOUT).code()
}

/// Starts a service under strace. `None` if it ends before it listens.
fn start(database: &Database, strace: Command, command: &str) -> Option<Server> {
    Server::try_start_skipping(database.petstore_by(strace, command), |line| !line.starts_with('{'))
}

/// Creates an animal or sends a message. A write without a response, or with status 500, has an unknown outcome.
fn write(service: &Server, key: &str, ledger: &Ledger, name: &str, number: usize) {
    ledger.sent(name);
    let request = match number % 2 {
        0 => service.pet_request(key, name),
        _ => Request::new(service.messages(), "POST", "/v1/messages").key(key).json(new_message(name)),
    };
    if let Ok(response) = request.header("idempotency-key", name).try_send_blocking()
        && response.status() != 500
    {
        ledger.answered(name, &response);
    }
}

/// Control: the check notices a row that is deleted after its acknowledgement.
fn loss_is_noticed() {
    let Shop { database, key } = Shop::on_sqlite();
    let ledger = Ledger::default();
    let mut service = database.serve();
    (0..WRITES).for_each(|number| write(&service, &key, &ledger, &number.to_string(), number));
    service.stop();
    ledger.notices_damage(&database);
}

#[test]
fn quickstart_announces_only_what_is_there() {
    let mut random = Random::from_seed();
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(quickstart(Fault::count(&FILES, file.path())).unwrap(), "it is announced");
    let faults = Fault::all(&FILES, file.path(), &std::env::temp_dir().to_string_lossy());
    let all = faults.len();
    let faults = if trial::is_full() { faults } else { sample(faults, SHORT, &mut random) };
    let (mut announced, mut violations) = (0, Vec::new());
    for fault in &faults {
        let _case = Case(fault.to_string());
        match quickstart(fault.strace(file.path())) {
            Ok(is_announced) => announced += u32::from(is_announced),
            Err(why) => violations.push(format!("{fault}: {why}")),
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    trial::measured(&format!(
        "{} of {all} faults in a quickstart: {announced} announced, with all they announced; the next one completed every \
         other; a missing animal and a wrong key are noticed",
        faults.len()
    ));
}

/// Runs a quickstart under strace, then one without. Returns whether the first one announced its key.
fn quickstart(strace: Command) -> Result<bool, String> {
    let database = Database::temporary();
    let command = format!("quickstart {FREE_PORTS}");
    let announced = start(&database, strace, &command).and_then(|mut service| {
        service.signal(Signal::TERM);
        service.ended(TIMEOUT);
        let stdout = service.end().stdout;
        stdout.lines().find_map(|line| line.trim().strip_prefix("API key ").map(|key| key.trim().to_owned()))
    });
    let mut again = start(&database, Command::new("env"), &command).ok_or("the next quickstart does not start")?;
    let kept = std::fs::read_to_string(database.file("quickstart.key")).map_err(|error| error.to_string())?;
    for key in announced.iter().map(String::as_str).chain([kept.trim()]) {
        has_animals(&again.get("/v1/pets?limit=100", key), 30)?;
    }
    // Control: the check notices other animals, and a key that does not work.
    has_animals(&again.get("/v1/pets?limit=100", kept.trim()), 29).unwrap_err();
    has_animals(&again.get("/v1/pets?limit=100", "pet_test_wrong"), 30).unwrap_err();
    again.stop();
    Ok(announced.is_some())
}

fn has_animals(response: &Response, count: usize) -> Result<(), String> {
    let found = response.json().as_array().map(Vec::len);
    if found == Some(count) { Ok(()) } else { Err(format!("{response:?}")) }
}
