//! Promise 38: no failing system call goes unnoticed. A command that reports success has done everything. A command that
//! fails or is killed has done everything or nothing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use testkit::{Database, Ended, Ledger, Process, Random, Request, Server, Signal, TIMEOUT, new_message, trial, within};

use crate::trace;
use crate::writing_commands::{ALL, Command, Place, Snapshot};

/// System calls that open, change, sync and map files. `write` is missing because threads also wake each other with it, and
/// the kernel never fails these calls. Tests of full disks fail writes to files.
const CALLS: [&str; 9] =
    ["openat", "unlink", "rename", "renameat2", "ftruncate", "mmap", "pwrite64", "fsync", "fdatasync"];

const KILL: &str = "signal=KILL";
const FAULTS: [&str; 4] = ["error=EIO", "error=ENOSPC", "error=EPERM", KILL];

/// Number of cases in a short run: of each command, and of the service.
const SHORT: [usize; 2] = [1, 4];

#[test]
fn command_does_everything_or_nothing_and_reports_which() {
    let mut random = Random::from_seed();
    let folder = tempfile::tempdir().unwrap();
    let place = Place::make(folder.path());
    let (mut done, mut all, mut succeeded, mut failed_and_done) = (0, 0, 0, 0);
    let mut violations = Vec::new();
    for command in &ALL {
        let (before, after, faults) = without_faults(&place, command);
        control(command, &before, &after);
        all += faults.len();
        let faults = if trial::is_full() { faults } else { sample(faults, SHORT[0], &mut random) };
        for fault in &faults {
            let _case = Case(format!("{}: {fault}", command.line));
            let ended = run(&place, command, fault.strace(&place.trace()));
            let found = place.snapshot(command);
            if let Err(why) = judge(&before, &after, &found, ended.code) {
                violations.push(format!("{}: {fault}: {why}: {ended:?}", command.line));
            }
            succeeded += usize::from(ended.code == Some(0));
            failed_and_done += usize::from(ended.code == Some(1) && found == after);
            done += 1;
        }
        println!("{}: {} of {} faults, {} violations", command.line, faults.len(), all, violations.len());
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    trial::measured(&format!(
        "{done} of {all} faults ({} by {}) in {} commands: {succeeded} times success and everything done, otherwise \
         everything or nothing, {failed_and_done} times done and reported as failed; a command that does nothing and reports \
         success is noticed, and so is one that writes a part",
        CALLS.join(", "),
        FAULTS.join(", "),
        ALL.len(),
    ));
}

/// Runs a command without a fault. Returns the state before and after, and every fault that can be injected.
fn without_faults(place: &Place, command: &Command) -> (Snapshot, Snapshot, Vec<Fault>) {
    place.reset(command);
    let before = place.snapshot(command);
    let ended = run(place, command, Fault::count(&place.trace()));
    assert_eq!(ended.code, Some(0), "{}: {ended:?}", command.line);
    let faults = Fault::all(&place.trace(), place.folder());
    (before, place.snapshot(command), faults)
}

fn run(place: &Place, command: &Command, strace: std::process::Command) -> Ended {
    place.reset(command);
    Process::start(&mut place.database().petstore_by(strace, &place.line(command))).end()
}

/// Fails if the exit status contradicts the state that was found.
fn judge(before: &Snapshot, after: &Snapshot, found: &Snapshot, code: Option<i32>) -> Result<(), String> {
    match code {
        _ if found == after => Ok(()),
        Some(0) => Err(format!("success was reported, and there is {found:?}")),
        _ if found == before => Ok(()),
        _ => Err(format!("it was done in part, and there is {found:?}")),
    }
}

/// Control: the check notices a command that did nothing or only a part.
fn control(command: &Command, before: &Snapshot, after: &Snapshot) {
    let part = Snapshot { database: after.database.clone(), output: format!("{}half", before.output) };
    assert!(judge(before, after, &part, Some(1)).is_err(), "{}: a part is not noticed", command.line);
    if command.changes {
        assert!(judge(before, after, before, Some(0)).is_err(), "{}: nothing is not noticed", command.line);
    }
}

#[test]
fn service_acknowledges_nothing_that_a_failing_call_loses() {
    let mut random = Random::from_seed();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let whole = serve(Fault::count(&file));
    assert_eq!((whole.acknowledged, whole.code), (WRITES, Some(0)));
    let faults = Fault::all(&file, &std::env::temp_dir());
    let all = faults.len();
    let faults = if trial::is_full() { faults } else { sample(faults, SHORT[1], &mut random) };
    let (mut acknowledged, mut ended) = (0, 0);
    let mut violations = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        let _case = Case(fault.to_string());
        let served = serve(fault.strace(&file));
        violations.extend(served.violation.map(|why| format!("{fault}: {why}")));
        acknowledged += served.acknowledged;
        ended += usize::from(served.code != Some(0));
        if number % 100 == 99 {
            println!("{} of {all}: {acknowledged} acknowledged, {} violations", number + 1, violations.len());
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    loss_is_noticed();
    trial::measured(&format!(
        "{} of {all} faults in a service: {acknowledged} writes acknowledged, 0 lost, {ended} times the process ended with \
         a status other than 0; a deleted row is noticed",
        faults.len(),
    ));
}

/// Number of writes in each run of the service.
const WRITES: usize = 8;

struct Served {
    acknowledged: usize,
    /// A difference between the ledger and the database.
    violation: Option<String>,
    code: Option<i32>,
}

/// Serves under strace, writes, and stops.
fn serve(strace: std::process::Command) -> Served {
    let database = Database::temporary();
    let (key, ledger) = (database.make_key(), Ledger::default());
    let service =
        Server::try_start_skipping(database.petstore_by(strace, Database::SERVE), |line| !line.starts_with('{'));
    let code = service.and_then(|mut service| {
        (0..WRITES).for_each(|number| write(&service, &key, &ledger, number));
        // Fails if the process has ended.
        service.signal(Signal::TERM);
        service.ended(TIMEOUT).code()
    });
    database.run("account list");
    let violation = ledger.compare(database.data_dir()).violation();
    Served { acknowledged: ledger.acknowledged(), violation, code }
}

/// Creates an animal or sends a message. A write without a response, or with status 500, has an unknown outcome.
fn write(service: &Server, key: &str, ledger: &Ledger, number: usize) {
    let name = format!("write-{number}");
    ledger.sent(&name);
    let request = match number % 2 {
        0 => service.pet_request(key, &name),
        _ => Request::new(service.messages(), "POST", "/v1/messages").key(key).json(new_message(&name)),
    };
    if let Ok(response) = request.header("idempotency-key", &name).try_send_blocking()
        && response.status() != 500
    {
        ledger.answered(&name, &response);
    }
}

/// Control: the check notices a row that is deleted after its acknowledgement.
fn loss_is_noticed() {
    let database = Database::temporary();
    let (key, ledger) = (database.make_key(), Ledger::default());
    let mut service = database.serve();
    (0..WRITES).for_each(|number| write(&service, &key, &ledger, number));
    service.stop();
    ledger.notices_damage(database.data_dir());
}

/// Prints the case if the test panics, for instance because a process does not end.
struct Case(String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case {}", self.0);
        }
    }
}

/// A fault that is injected into the `number`-th call of each thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    call: &'static str,
    number: usize,
    fault: &'static str,
}

impl Fault {
    /// Returns strace, set to record the calls.
    fn count(file: &Path) -> std::process::Command {
        let mut strace = trace::strace(file);
        strace.arg("-e").arg(format!("trace={}", CALLS.join(",")));
        strace
    }

    /// Returns each fault in each call of a trace, from the first call that names a file below `folder`. The calls before it
    /// load the program.
    fn all(file: &Path, folder: &Path) -> Vec<Self> {
        let mut trace = String::new();
        within(TIMEOUT, "tracing", || {
            trace = std::fs::read_to_string(file).unwrap();
            trace.lines().last().is_some_and(|line| line.contains("+++ exited"))
        });
        let (mut counts, mut faults, mut has_begun) = (HashMap::new(), BTreeSet::new(), false);
        for line in trace.lines() {
            let (thread, call) = line.split_once(' ').unwrap();
            let call = call.trim_start();
            let Some(&call) = CALLS.iter().find(|known| call.starts_with(&format!("{known}("))) else { continue };
            let number = counts.entry((thread, call)).or_insert(0);
            *number += 1;
            has_begun |= line.contains(&*folder.to_string_lossy());
            if has_begun {
                faults.extend(FAULTS.map(|fault| Self { call, number: *number, fault }));
            }
        }
        assert!(has_begun, "{trace}");
        faults.into_iter().collect()
    }

    fn strace(&self, file: &Path) -> std::process::Command {
        let Self { call, number, fault } = self;
        let mut strace = if *fault == KILL { trace::strace_that_kills(file) } else { trace::strace(file) };
        strace.args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={number}")]);
        strace
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:when={}", self.call, self.fault, self.number)
    }
}

/// Selects `count` faults.
fn sample(mut faults: Vec<Fault>, count: usize, random: &mut Random) -> Vec<Fault> {
    (0..count).map(|_| faults.swap_remove(random.index(faults.len()))).collect()
}
