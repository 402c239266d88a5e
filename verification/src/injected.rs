//! Faults that strace injects into the system calls of a process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use testkit::{Random, TIMEOUT, eventually};

use crate::trace;

/// System calls, and what happens to each of them.
pub struct Calls {
    pub names: &'static [&'static str],
    pub faults: [&'static str; 4],
}

pub const KILL: &str = "signal=KILL";

/// The calls that open, change, sync and map files. `write` is missing because threads also wake each other with it, which the
/// kernel never fails: a process may hang if it does. Tests of full disks fail writes to files.
pub const FILES: Calls = Calls {
    names: &["openat", "unlink", "rename", "renameat2", "ftruncate", "mmap", "pwrite64", "fsync", "fdatasync"],
    faults: ["error=EIO", "error=ENOSPC", "error=EPERM", KILL],
};

/// The calls that connect to PostgreSQL and exchange bytes with it.
pub const SOCKETS: Calls = Calls {
    names: &["connect", "sendto", "writev", "recvfrom"],
    faults: ["error=ECONNRESET", "error=EPIPE", "error=ENOBUFS", KILL],
};

/// A fault that is injected into the `number`-th call of each thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    pub call: &'static str,
    number: usize,
    pub fault: &'static str,
}

impl Fault {
    /// Returns strace, set to record the calls.
    pub fn count(calls: &Calls, file: &Path) -> std::process::Command {
        let mut strace = trace::strace(file);
        strace.args(["-yy", "-e"]).arg(format!("trace={}", calls.names.join(",")));
        strace
    }

    /// Returns each fault in each call of a trace, from the first call that contains `first`. The calls before it load the
    /// program.
    pub fn all(calls: &Calls, file: &Path, first: &str) -> Vec<Self> {
        let trace = eventually(TIMEOUT, "tracing", || {
            let trace = std::fs::read_to_string(file).unwrap();
            trace.lines().last().is_some_and(|line| line.contains("+++ exited")).then_some(trace)
        });
        let (mut counts, mut faults, mut has_begun) = (HashMap::new(), BTreeSet::new(), false);
        for line in trace.lines() {
            let (thread, call) = line.split_once(' ').unwrap();
            let call = call.trim_start();
            let is_of = |known: &&&str| call.strip_prefix(**known).is_some_and(|rest| rest.starts_with('('));
            let Some(&call) = calls.names.iter().find(is_of) else { continue };
            let number = counts.entry((thread, call)).or_insert(0);
            *number += 1;
            has_begun |= line.contains(first);
            if has_begun && !is_wake_up(line) {
                faults.extend(calls.faults.map(|fault| Self { call, number: *number, fault }));
            }
        }
        assert!(has_begun, "{trace}");
        faults.into_iter().collect()
    }

    pub fn kills(&self) -> bool {
        self.fault == KILL
    }

    pub fn strace(&self, file: &Path) -> std::process::Command {
        let Self { call, number, fault } = self;
        let mut strace = if self.kills() { trace::strace_that_kills(file) } else { trace::strace(file) };
        strace.args(["-yy", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={number}")]);
        strace
    }
}

/// Returns whether a call wakes another thread of the process, or tells one of a signal. The kernel never fails these.
fn is_wake_up(line: &str) -> bool {
    line.contains("<anon_inode:") || line.contains("<UNIX-STREAM:")
}

/// Returns whether the fault hit the wake-up of a thread. Threads are not scheduled the same way in each run, so a call has
/// not always the same number.
pub fn hit_a_wake_up(trace: &Path) -> bool {
    let trace = std::fs::read_to_string(trace).unwrap();
    trace.lines().any(|line| line.contains("(INJECTED)") && is_wake_up(line))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:when={}", self.call, self.fault, self.number)
    }
}

/// Selects `count` faults.
pub fn sample(mut faults: Vec<Fault>, count: usize, random: &mut Random) -> Vec<Fault> {
    (0..count).map(|_| faults.swap_remove(random.index(faults.len()))).collect()
}

/// Prints the case if the test panics, for instance because a process does not end.
pub struct Case(pub String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case {}", self.0);
        }
    }
}
