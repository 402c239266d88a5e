//! Traces of the system calls that write to the disk and to clients, recorded by strace.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{Database, Process, TIMEOUT, eventually};

/// The calls that change files and folders or send to clients.
const CALLS: &str = "trace=openat,mkdir,unlink,rename,ftruncate,pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg";

/// The effect of syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    Honest,
    /// The syncs of each thread from this number on report success without being done, as with `synchronous=OFF`.
    LyingFrom(u64),
    /// The sync with this number fails in each thread.
    Failing(u64),
}

/// A system call. Its times are line numbers of the trace.
pub struct Call {
    pub name: String,
    /// The file of the first descriptor among the arguments, or the first path.
    pub file: PathBuf,
    /// The written bytes, with the parts of a vectored write concatenated.
    pub data: Vec<u8>,
    /// The arguments as strace shows them.
    pub arguments: String,
    pub begun: usize,
    /// `None` if the call did not return.
    pub ended: Option<usize>,
    pub result: i64,
    /// strace returned a result without executing the call.
    pub injected: bool,
}

/// Returns strace as the wrapper of a command, with its trace in `file`. The command keeps the id of the started process.
pub fn recorder(file: &Path, disk: Disk) -> Command {
    let mut strace = strace(file);
    // Complete strings in hexadecimal, and the path of each file descriptor.
    strace.args(["-xx", "-s", "1000000", "-y", "-e", CALLS]);
    let inject = match disk {
        Disk::Honest => return strace,
        Disk::LyingFrom(first) => format!("inject=fdatasync,fsync:retval=0:when={first}+"),
        Disk::Failing(which) => format!("inject=fdatasync:error=EIO:when={which}"),
    };
    strace.args(["-e", &inject]);
    strace
}

/// Starts strace, which injects a fault into all calls of a running process with these files of its database.
pub fn attach(process: &Process, database: &Database, files: &[&str], calls: &str, fault: &str) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-o", "/dev/null", "-p", &process.pid().to_string()]);
    for file in files {
        strace.arg("-P").arg(database.file(file));
    }
    strace.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{fault}")]);
    strace.stderr(Stdio::null()).spawn().unwrap()
}

/// strace of all threads, with its output in `file`.
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

/// Reads the trace of a process that has ended.
pub fn read(file: &Path, process: u32) -> Vec<Call> {
    // strace may still be writing when the process has ended.
    let lines = eventually(TIMEOUT, "writing the trace", || {
        let reader =
            BufReader::new(File::open(file).expect("strace is not installed: run scripts/test, which installs it"));
        let lines: Vec<_> = reader.lines().map(Result::unwrap).collect();
        let ended = |line: &String| line.starts_with(&format!("{process} ")) && line.contains(" +++ ");
        lines.last().is_some_and(ended).then_some(lines)
    });
    parse(&lines)
}

fn parse(lines: &[String]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    // The unfinished call of each thread: its line number and the start of its text.
    let mut unfinished: HashMap<&str, (usize, &str)> = HashMap::new();
    for (number, line) in lines.iter().enumerate() {
        let (thread, text) = line.split_once(' ').unwrap();
        let text = text.trim_start();
        if text.starts_with("+++") || text.starts_with("---") {
            continue;
        }
        if let Some(resumed) = text.strip_prefix("<... ") {
            let Some((begun, start)) = unfinished.remove(thread) else { panic!("{line} has no start") };
            let end = resumed.split_once(" resumed>").unwrap().1;
            calls.push(Call::parse(&format!("{start}{end}"), begun, Some(number)));
        } else if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, (number, start));
        } else {
            calls.push(Call::parse(text, number, Some(number)));
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
            // These calls name a file by its path. Others show the path of their descriptor.
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
            // strace shows a question mark for a call during which the process was killed.
            ended: ended.filter(|_| !result.starts_with('?')),
            result: result.split([' ', '<']).next().unwrap().parse().unwrap_or(-1),
            injected: result.contains("INJECTED"),
        }
    }

    /// The last argument, which is a number.
    pub fn last_number(&self) -> u64 {
        let last = self.arguments.trim_end().trim_end_matches(')').rsplit(", ").next().unwrap();
        last.parse().unwrap_or_else(|_| panic!("{}: {last} is no number", self.name))
    }

    pub fn is_sync(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync") && self.result == 0 && !self.injected
    }

    /// The name of the write that this call acknowledges, and its id as JSON. `None` for any other call.
    pub fn acknowledged(&self) -> Option<(String, String)> {
        let success = [b"HTTP/1.1 201", b"HTTP/1.1 202"].iter().any(|start| self.data.starts_with(*start));
        let text = success.then(|| String::from_utf8(self.data.clone()).unwrap())?;
        let body: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).unwrap();
        let name = body.get("name").or_else(|| body.get("message")).unwrap();
        Some((name.as_str().unwrap().to_owned(), body["id"].to_string()))
    }
}

/// Parses bytes in the form `\x41\x42`.
fn bytes(shown: &str) -> Vec<u8> {
    let digits = |byte: &str| u8::from_str_radix(byte, 16).ok();
    shown.split("\\x").skip(1).map(|byte| digits(byte).unwrap_or_else(|| panic!("not a byte: {byte}"))).collect()
}
