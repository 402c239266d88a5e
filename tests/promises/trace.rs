//! The system calls of a process, as strace sees them: what went to the disk and to clients, and in what order.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::within;

/// What changes files and folders, and what goes to clients.
const CALLS: &str = "trace=openat,mkdir,unlink,rename,ftruncate,pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg";

/// What the disk does when it is told to keep something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    Honest,
    /// A sync reports success and is not carried out, as it would be with `synchronous=OFF`.
    Lying,
    /// This sync of each thread fails.
    Failing(u64),
    /// Lies from this sync of each thread on, for ten of them.
    LyingFor10(u64),
}

/// One system call. Its beginning and its end are places in the order in which strace let the process go on.
pub struct Call {
    pub name: String,
    /// The file of the first descriptor among the arguments, or the first path.
    pub file: PathBuf,
    /// What was written, put together where it came in parts.
    pub data: Vec<u8>,
    /// The arguments as strace shows them.
    pub arguments: String,
    pub begun: usize,
    /// Nothing where it never came back.
    pub ended: Option<usize>,
    pub result: i64,
    /// Answered by strace, and not carried out.
    pub injected: bool,
}

/// Begins a program under strace, which writes into `file`. The program keeps the process that is started.
pub fn recorder(file: &Path, disk: Disk) -> Command {
    let mut strace = strace(file);
    // Bytes in hexadecimal, whole, and paths beside descriptors.
    strace.args(["-xx", "-s", "1000000", "-y", "-e", CALLS]);
    let inject = match disk {
        Disk::Honest => return strace,
        Disk::Lying => "inject=fdatasync,fsync:retval=0".to_owned(),
        Disk::Failing(which) => format!("inject=fdatasync:error=EIO:when={which}"),
        Disk::LyingFor10(first) => format!("inject=fdatasync:retval=0:when={first}..{}", first + 9),
    };
    strace.args(["-e", &inject]);
    strace
}

/// strace with what all of its uses share.
pub fn strace(file: &Path) -> Command {
    let mut strace = strace_that_kills(file);
    strace.arg("--seccomp-bpf");
    strace
}

/// strace without `--seccomp-bpf`: slower, but able to inject `signal=KILL`, which strace 6.1 does not deliver with it.
pub fn strace_that_kills(file: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-q", "-e", "signal=KILL", "-o"]).arg(file);
    strace
}

/// Reads what was recorded of a process that has ended.
pub fn read(file: &Path, process: u32) -> Vec<Call> {
    let mut lines = Vec::new();
    // strace may have more to write than the process that has ended.
    within(Duration::from_secs(30), "writing the trace", || {
        let reader = BufReader::new(File::open(file).expect("strace is installed: scripts/test does that"));
        lines = reader.lines().map(Result::unwrap).collect();
        let ended = |line: &String| line.starts_with(&format!("{process} ")) && line.contains(" +++ ");
        lines.last().is_some_and(ended)
    });
    parse(&lines)
}

fn parse(lines: &[String]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    // The call that each thread is in, and its text so far.
    let mut unfinished: HashMap<&str, (usize, &str)> = HashMap::new();
    for (place, line) in lines.iter().enumerate() {
        let (thread, text) = line.split_once(' ').unwrap();
        let text = text.trim_start();
        if text.starts_with("+++") || text.starts_with("---") {
            continue;
        }
        if let Some(resumed) = text.strip_prefix("<... ") {
            let Some((begun, start)) = unfinished.remove(thread) else { panic!("{line} was never begun") };
            let end = resumed.split_once(" resumed>").unwrap().1;
            calls.push(Call::parse(&format!("{start}{end}"), begun, Some(place)));
        } else if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, (place, start));
        } else {
            calls.push(Call::parse(text, place, Some(place)));
        }
    }
    calls.extend(unfinished.into_values().map(|(begun, start)| Call::parse(start, begun, None)));
    calls.sort_by_key(|call| call.begun);
    calls
}

impl Call {
    fn parse(text: &str, begun: usize, ended: Option<usize>) -> Self {
        let (name, rest) = text.split_once('(').unwrap();
        let (arguments, result) = rest.rsplit_once(" = ").unwrap_or((rest, "-1"));
        let shown = arguments.find('<').zip(arguments.find('>'));
        let strings: Vec<_> = arguments.split('"').skip(1).step_by(2).map(bytes).collect();
        let path = match shown {
            // What a folder's descriptor stands for is given whole beside it.
            Some((start, end)) if !matches!(name, "openat" | "mkdir" | "unlink" | "rename") => {
                bytes(&arguments[start + 1..end])
            }
            _ => strings.first().cloned().unwrap_or_default(),
        };
        Self {
            name: name.to_owned(),
            file: String::from_utf8_lossy(&path).into_owned().into(),
            data: strings.concat(),
            arguments: arguments.to_owned(),
            begun,
            // strace shows what a process that was killed never saw the end of with a question mark.
            ended: ended.filter(|_| !result.starts_with('?')),
            result: result.split([' ', '<']).next().unwrap().parse().unwrap_or(-1),
            injected: result.contains("INJECTED"),
        }
    }

    /// The number that is the last argument.
    pub fn last_number(&self) -> u64 {
        let last = self.arguments.trim_end().trim_end_matches(')').rsplit(", ").next().unwrap();
        last.parse().unwrap_or_else(|_| panic!("{}: {last} is no number", self.name))
    }

    pub fn is_sync(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync") && self.result == 0 && !self.injected
    }

    /// The write that this is the acknowledgement of: what was acknowledged by name, and its id as JSON.
    pub fn acknowledged(&self) -> Option<(String, String)> {
        let success = [b"HTTP/1.1 201", b"HTTP/1.1 202"].iter().any(|start| self.data.starts_with(*start));
        let text = success.then(|| String::from_utf8(self.data.clone()).unwrap())?;
        let body: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).unwrap();
        let name = body.get("name").or_else(|| body.get("message")).unwrap();
        Some((name.as_str().unwrap().to_owned(), body["id"].to_string()))
    }
}

/// Reads bytes that are shown as `\x41\x42`.
fn bytes(shown: &str) -> Vec<u8> {
    let digits = |byte: &str| u8::from_str_radix(byte, 16).ok();
    shown.split("\\x").skip(1).map(|byte| digits(byte).unwrap_or_else(|| panic!("no byte: {byte}"))).collect()
}
