//! Promise 38: no failing system call goes unnoticed. A command that reports success has done everything. A command that
//! fails or is killed has done everything or nothing.

use std::fs::File;

use testkit::{Ended, Process, Random, trial};
use verification::injected::{Case, FILES, Fault, hit_a_wake_up, sample};

use crate::writing_commands::{ALL, Command, Place, Snapshot};

/// Number of faults in each command of a short run.
const SHORT: usize = 1;

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
        let faults = if trial::is_full() { faults } else { sample(faults, SHORT, &mut random) };
        for fault in &faults {
            let _case = Case(format!("{}: {fault}", command.line));
            let (ended, found) = run(&place, command, fault.strace(&place.trace()));
            if hit_a_wake_up(&place.trace()) {
                continue;
            }
            if let Err(why) = judge(&before, &after, &found, ended.code) {
                violations.push(format!("{}: {fault}: {why}: {ended:?}", command.line));
            }
            succeeded += usize::from(ended.code == Some(0));
            failed_and_done += usize::from(ended.code == Some(1) && found.is_of(&after));
            done += 1;
        }
        println!("{}: {} of {} faults, {} violations", command.line, faults.len(), all, violations.len());
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    trial::measured(&format!(
        "{done} of {all} faults ({} by {}) in {} commands: {succeeded} times success and everything done, otherwise \
         everything or nothing, {failed_and_done} times done and reported as failed; a command that does nothing and reports \
         success is noticed, and so is one that writes or prints a part",
        FILES.names.join(", "),
        FILES.faults.join(", "),
        ALL.len(),
    ));
}

/// Runs a command without a fault. Returns the state before and after, and every fault that can be injected.
fn without_faults(place: &Place, command: &Command) -> (Snapshot, Snapshot, Vec<Fault>) {
    place.reset(command);
    let before = place.snapshot(command, String::new());
    let (ended, after) = run(place, command, Fault::count(&FILES, &place.trace()));
    assert_eq!(ended.code, Some(0), "{}: {ended:?}", command.line);
    let faults = Fault::all(&FILES, &place.trace(), &place.folder().to_string_lossy());
    (before, after, faults)
}

/// Runs a command in the state before it. Returns its end, and the state after it.
fn run(place: &Place, command: &Command, strace: std::process::Command) -> (Ended, Snapshot) {
    place.reset(command);
    let mut petstore = place.database().petstore_by(strace, &place.line(command));
    let ended = Process::start(petstore.stdin(File::open(place.input()).unwrap())).end();
    let found = place.snapshot(command, ended.stdout.clone());
    (ended, found)
}

/// Fails if the exit status contradicts the state that was found.
fn judge(before: &Snapshot, after: &Snapshot, found: &Snapshot, code: Option<i32>) -> Result<(), String> {
    match code {
        Some(0) if found.is_of(after) && found.lines() == after.lines() => Ok(()),
        Some(0) => Err(format!("success was reported, and there is {found:?}")),
        _ if found.is_of(after) || found.is_of(before) => Ok(()),
        _ => Err(format!("it was done in part, and there is {found:?}")),
    }
}

/// Control: the check notices a command that did nothing, or wrote or printed only a part.
fn control(command: &Command, before: &Snapshot, after: &Snapshot) {
    let part = Snapshot { output: format!("{}half", before.output), ..after.clone() };
    assert!(judge(before, after, &part, Some(1)).is_err(), "{}: a part is not noticed", command.line);
    let printed = Snapshot { stdout: format!("{}\nanother line", after.stdout), ..after.clone() };
    assert!(judge(before, after, &printed, Some(0)).is_err(), "{}: other output is not noticed", command.line);
    if command.changes {
        assert!(judge(before, after, before, Some(0)).is_err(), "{}: nothing is not noticed", command.line);
    }
}
