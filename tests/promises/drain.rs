//! Promise 29: a process that is told to stop drops no request, behind a proxy that reads `/readyz`.
//!
//! Two processes share a database behind HAProxy (Debian's package, which `scripts/test` installs), and are renewed by
//! turns while clients ask and add.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::Load;
use crate::process::{Database, PATIENCE, Process, within};
use crate::trial::{self, is_full, rounds};

/// How often HAProxy looks, and longer than it takes to notice.
const CHECK: Duration = Duration::from_millis(100);
const DRAIN_DELAY: &str = "1s";

const CONFIG: &str = "\
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    timeout check 1s
    default-server inter {check}ms fall 1 rise 1

listen store
    bind 127.0.0.1:{front}
    balance leastconn
    option httpchk GET /readyz
    server a 127.0.0.1:{a} check
    server b 127.0.0.1:{b} check
";

#[test]
fn restarts_behind_a_proxy_drop_no_request() {
    let rounds = rounds(4);
    let Restarts { accepted, failed } = restart(rounds, DRAIN_DELAY, Signal::TERM);
    assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), failed.first());
    trial::measured(&format!("{rounds} restarts under {accepted} requests, 0 of them failed"));
}

/// The control: processes that just vanish are noticed.
#[test]
fn a_process_that_vanishes_fails_requests() {
    // A process may vanish while no request is with it, but not where there are many.
    let runs = if is_full() { 1 } else { 10 };
    assert!((0..runs).any(|_| !restart(4, DRAIN_DELAY, Signal::KILL).failed.is_empty()));
}

/// What became of the requests meanwhile.
struct Restarts {
    accepted: usize,
    failed: Vec<String>,
}

/// Restarts the two processes by turns.
fn restart(rounds: u32, drain_delay: &str, signal: Signal) -> Restarts {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let ports = [free_port(), free_port(), free_port()];
    let serve = |port: u16| {
        let doors = "--doors store,ops --ops-listen 127.0.0.1:0";
        let command = format!("serve {doors} --listen 127.0.0.1:{port} --drain-delay {drain_delay}");
        Process::start(database.petstore(&command))
    };
    let mut services = [serve(ports[1]), serve(ports[2])];
    let _proxy = Haproxy::start(folder.path(), ports);
    let through = Load {
        address: format!("127.0.0.1:{}", ports[0]),
        clients: if is_full() { 64 } else { 10 },
        request: Load::lists_and_creates,
        key,
        time: Duration::from_millis(500),
        rate: Some(if is_full() { 2_000.0 } else { 100.0 }),
        obeys: false,
    };
    within(Duration::from_secs(60), "the proxy", || {
        let outcome = through.run();
        outcome.failed.is_empty() && outcome.refused.is_empty() && !outcome.accepted.is_empty()
    });

    let mut failed = Vec::new();
    let mut accepted = 0;
    for round in 0..rounds {
        let which = round as usize % 2;
        let running = Load { time: Duration::from_secs(3), ..through.clone() }.start();
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_raw(services[which].pid() as i32).unwrap(), signal).unwrap();
        services[which].ended(PATIENCE);
        services[which] = serve(ports[1 + which]);
        // The proxy must know of it before the other goes.
        std::thread::sleep(CHECK * 5);
        let outcome = running.join().unwrap();
        accepted += outcome.accepted.len();
        failed.extend(outcome.failed);
        failed.extend(outcome.refused.iter().map(|took| format!("503 after {took:?}")));
    }
    assert!(accepted > rounds as usize * 20, "only {accepted} requests were answered: the test has tested little");
    Restarts { accepted, failed }
}

struct Haproxy(Child);

impl Haproxy {
    fn start(folder: &Path, [front, a, b]: [u16; 3]) -> Self {
        let config = CONFIG.replace("{front}", &front.to_string()).replace("{check}", &CHECK.as_millis().to_string());
        let config = config.replace("{a}", &a.to_string()).replace("{b}", &b.to_string());
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        // Debian has it where not everybody looks for programs.
        let program =
            ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.expect("HAProxy is not installed: run scripts/test, which installs it"));
        Self(command.args(["-db", "-f"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port below those that systems give to clients: it must be free again for the next process.
fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 9_000) as u16;
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    loop {
        let port = first + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
