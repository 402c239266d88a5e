//! The built program as a process, which ends with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::replace;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::wait::{TIMEOUT, eventually, within};

/// Maximum time for a process to show that it does something, even on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The built program. Cargo puts it beside the folder of the test binaries.
///
/// # Panics
///
/// Panics if the program is missing, because Cargo builds it only for the tests of its own package.
pub fn petstore() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).expect("a test binary is in target/PROFILE/deps");
        let program = profile.join("petstore");
        let build = "cargo build -p petstore -p petstore-verification --features petstore/otlp --bin petstore";
        let flag = if profile.ends_with("release") { " --release" } else { "" };
        assert!(program.exists(), "{} is missing: build it with `{build}{flag}`", program.display());
        program.into_os_string().into_string().unwrap()
    });
    &PATH
}

/// Keeps only the variables that a program needs to run: terminal widths, colours and `PETSTORE_…` change what is printed.
pub(crate) fn with_clean_environment(command: &mut Command) {
    let kept = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR");
    command.env_clear().envs(kept);
}

/// A server program of a Debian package. Debian installs some outside the PATH of most users.
pub fn server_program(name: &str) -> Command {
    let mut program = Command::new(name);
    program.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
    program
}

/// A process that ends when its stdin closes, which happens on drop and also when the test process is killed.
pub struct Keeper(pub Child);

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A process that is killed on drop.
pub struct Killed(pub Child);

impl Killed {
    /// Starts a program that is killed with this thread, appends its output to `log`, and waits until it listens on `port`.
    pub(crate) fn listening(program: &[&str], folder: &Path, port: u16) -> Self {
        let log = folder.join("log");
        let output = || fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut command = server_program("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(program).current_dir(folder).stdout(output()).stderr(output());
        let mut server = Self(command.spawn().unwrap());
        within(TIMEOUT, "listening", || {
            let has_ended = server.0.try_wait().unwrap().is_some();
            assert!(!has_ended, "{program:?}: {}", fs::read_to_string(&log).unwrap());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The peak of resident memory in bytes, sampled.
    pub peak: u64,
}

impl Ended {
    /// The lines of the log, `LEVEL message` each. Panics if stderr has a line other than JSON with a time.
    pub fn log(&self) -> String {
        let lines = self.stderr.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            assert!(line["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
            format!("{} {}\n", line["level"].as_str().unwrap(), line["message"].as_str().unwrap())
        });
        lines.collect()
    }

    /// The exit code and all output of a one-shot command, for a snapshot.
    pub fn shown(&self) -> String {
        format!("exit {:?}\n{}{}", self.code.unwrap(), self.stdout, self.stderr)
    }

    /// The exit code and all output of `serve` or `quickstart`, which write a log.
    pub fn shown_log(&self) -> String {
        format!("exit {:?}\n{}{}", self.code.unwrap(), self.stdout, self.log())
    }

    /// The exit code and stderr after wrong usage, which prints nothing to stdout.
    pub fn usage(&self) -> String {
        assert_eq!(self.stdout, "");
        format!("exit {:?}\n{}", self.code.unwrap(), self.stderr)
    }
}

/// A process whose output is captured. Killed on drop.
pub struct Process {
    child: Child,
    pub(crate) stdout: Option<Lines>,
    pub(crate) stderr: Lines,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with_stdout(command, Stdio::piped())
    }

    pub fn start_with_stdout(command: &mut Command, stdout: Stdio) -> Self {
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(|stdout| Lines::of(stdout, |_| ()));
        // A failing test shows the log.
        let stderr = Lines::of(child.stderr.take().unwrap(), |line| eprint!("{line}"));
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stdin, which the command must have set to a pipe.
    pub fn input(&mut self) -> &mut impl Write {
        self.child.stdin.as_mut().expect("stdin is a pipe")
    }

    /// Takes stdin. Dropping it hangs up.
    pub fn take_input(&mut self) -> impl Write + use<> {
        self.child.stdin.take().expect("stdin is a pipe")
    }

    /// Waits for the next line on stdout. `None` after the last one.
    pub fn next_line(&self) -> Option<String> {
        self.stdout.as_ref().expect("stdout is captured").next()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Suspends all threads and returns when none of them runs. [`Signal::CONT`] continues them.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |thread: std::io::Result<fs::DirEntry>| {
            // Empty if the thread has ended meanwhile.
            let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
        };
        within(TIMEOUT, "stopping", || fs::read_dir(self.proc("task")).unwrap().all(is_stopped));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended(TIMEOUT)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits, at most `limit`, until the process ends without a signal from the test.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        eventually(limit, "ending", || self.child.try_wait().unwrap())
    }

    /// Waits for the end and returns all remaining output. On a busy machine, a process that works through a large file gets
    /// another minute as long as it works: if it used a second of processor time in the last one.
    pub fn end(mut self) -> Ended {
        let mut peak = 0;
        let (mut began, mut worked) = (Instant::now(), Duration::ZERO);
        let status = eventually(10 * END_TIMEOUT, "ending", || {
            peak = peak.max(self.status_bytes("VmHWM:"));
            let ended = self.child.try_wait().unwrap();
            if ended.is_none() && began.elapsed() > END_TIMEOUT {
                let before = replace(&mut worked, self.cpu());
                assert!(worked - before > Duration::from_secs(1), "it does not end, and does nothing");
                began = Instant::now();
            }
            ended
        });
        let stdout = self.stdout.as_ref().map_or(String::new(), Lines::rest);
        Ended { code: status.code(), stdout, stderr: self.stderr.rest(), peak }
    }

    /// Waits until the process has a handler for SIGINT. Returns false if the process has ended.
    pub fn catches_sigint(&self) -> bool {
        self.catches(Signal::INT)
    }

    /// Waits until the process has a handler for a signal. Returns false if the process has ended.
    pub fn catches(&self, signal: Signal) -> bool {
        let bit = 1 << (signal.as_raw() - 1);
        eventually(END_TIMEOUT, "catching a signal", || {
            let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
            let catches = mask.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() & bit != 0);
            // An ended process still has a mask until it is waited for.
            let has_ended = mask.is_none() || status.contains("State:\tZ");
            (catches || has_ended).then_some(catches && !has_ended)
        })
    }

    /// The number of open sockets.
    pub fn sockets(&self) -> usize {
        let descriptors = fs::read_dir(self.proc("fd")).unwrap();
        let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// Processor time so far, in user and system mode together.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // Linux counts in hundredths of a second on every architecture.
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// A line of `/proc/PID/status` in bytes, zero if the process has ended.
    fn status_bytes(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.pid()).into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output split after each line break, read in the background so that the process never waits for its reader.
pub(crate) struct Lines(Mutex<Receiver<String>>);

impl Lines {
    fn of(from: impl Read + Send + 'static, seen: impl Fn(&str) + Send + 'static) -> Self {
        let (to, read) = mpsc::channel();
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).unwrap() > 0 {
                let line = String::from_utf8(std::mem::take(&mut line)).unwrap();
                seen(&line);
                // The test may have dropped the process.
                let _ = to.send(line);
            }
        });
        Self(Mutex::new(read))
    }

    /// The next line. `None` after the last one.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.lock().unwrap().recv_timeout(END_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process writes nothing and does not end"),
        }
    }

    fn rest(&self) -> String {
        self.0.lock().unwrap().iter().collect()
    }
}
