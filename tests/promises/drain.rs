//! Promise 29: a process that is told to stop drops no request, behind a proxy that reads `/readyz`.
//!
//! Two processes share a database behind HAProxy (Debian's package, which `scripts/test` installs), and are renewed by
//! turns while clients ask and add.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::blocking::try_get;
use testkit::trial::{self, is_full, rounds};
use testkit::{Database, Load, Server, TIMEOUT, within};

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
fn killed_process_fails_requests() {
    // A process may vanish while no request is with it, but not where there are many.
    let runs = if is_full() { 1 } else { 10 };
    assert!((0..runs).any(|_| !restart(4, DRAIN_DELAY, Signal::KILL).failed.is_empty()));
}

/// With the HAProxy configuration of `scripts/cluster`, clients get the responses of petstore while a process is alive.
#[test]
fn requests_in_flight_outlive_readiness() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let names =
        ["primary", "standbys", "store", "messages", "haproxy_stats", "pg1", "pg2", "pg3", "pg1_api", "pg2_api"];
    let names = names.into_iter().chain(["pg3_api", "petstore1_store", "petstore2_store", "petstore3_store"]);
    let names = names.chain(["petstore1_messages", "petstore2_messages", "petstore3_messages"]);
    let ports: BTreeMap<_, _> = names.map(|name| (name, free_port())).collect();
    let serve = |number: u32| {
        let (store, messages) =
            (ports[format!("petstore{number}_store").as_str()], ports[format!("petstore{number}_messages").as_str()]);
        let listen = format!("--listen 127.0.0.1:{store} --messages-listen 127.0.0.1:{messages}");
        let listeners = "--listeners store,messages,ops --ops-listen 127.0.0.1:0";
        Server::start(database.petstore(&format!("serve {listeners} {listen} --drain-delay 60s")))
    };
    // The third process and the database servers are never started.
    let services = [serve(1), serve(2)];
    let _proxy = Haproxy::start_with(folder.path(), &cluster_config(&ports));
    let statistics = || servers(ports["haproxy_stats"]);
    let ready = || statistics().into_iter().filter(|server| server.proxy == "store" && server.is_up).count();
    within(TIMEOUT, "the proxy", || ready() == 2);

    // Each process has one request, whose body is incomplete.
    let body = r#"{"name":"Rex","categoryId":1}"#;
    let requests = [(), ()].map(|()| {
        let mut stream = TcpStream::connect(("127.0.0.1", ports["store"])).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{{",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    let under_way = || statistics().iter().filter(|server| server.proxy == "store" && server.sessions == 1).count();
    within(TIMEOUT, "sending", || under_way() == 2);
    let term = |service: &Server| kill_process(Pid::from_raw(service.pid() as i32).unwrap(), Signal::TERM).unwrap();
    for (left, service) in [(1, &services[0]), (0, &services[1])] {
        term(service);
        within(TIMEOUT, "noticing", || ready() == left);
    }
    for mut stream in requests {
        stream.write_all(&body.as_bytes()[1..]).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    // No process is ready, but both are alive.
    for door in ["store", "messages"] {
        let answer = try_get(&format!("127.0.0.1:{}", ports[door]), "/v1/nothing").unwrap();
        assert_eq!((answer.status, &answer.json()["code"]), (404, &"not_found".into()), "{answer:?}");
    }
    trial::measured("2 requests under way on processes that are not ready, 0 lost");
}

/// Returns the HAProxy configuration of `scripts/cluster`.
fn cluster_config(ports: &BTreeMap<&str, u16>) -> String {
    let script = "import json, sys; sys.path.insert(0, 'ops'); from cluster.haproxy import config; \
                  print(config(json.loads(sys.argv[1])))";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", script, &serde_json::to_string(ports).unwrap()]);
    let printed = python.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).unwrap()
}

/// A backend server in HAProxy's statistics.
struct ProxyServer {
    proxy: String,
    is_up: bool,
    sessions: u32,
}

/// Reads HAProxy's statistics. Empty while HAProxy does not accept connections.
fn servers(port: u16) -> Vec<ProxyServer> {
    let mut text = String::new();
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return Vec::new() };
    stream.write_all(b"show stat\n").unwrap();
    stream.read_to_string(&mut text).unwrap();
    let mut rows = text.trim_start_matches("# ").lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap_or_default();
    let column = |name| head.iter().position(|column| *column == name).unwrap();
    let (proxy, name, status, sessions) = (column("pxname"), column("svname"), column("status"), column("scur"));
    let rows = rows.filter(|row| row.len() > status && !["FRONTEND", "BACKEND"].contains(&row[name]));
    rows.map(|row| ProxyServer {
        proxy: row[proxy].to_owned(),
        is_up: row[status].starts_with("UP"),
        sessions: row[sessions].parse().unwrap_or(0),
    })
    .collect()
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
        let listeners = "--listeners store,ops --ops-listen 127.0.0.1:0";
        let command = format!("serve {listeners} --listen 127.0.0.1:{port} --drain-delay {drain_delay}");
        Server::start(database.petstore(&command))
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
        services[which].ended(TIMEOUT);
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
        Self::start_with(folder, &config.replace("{a}", &a.to_string()).replace("{b}", &b.to_string()))
    }

    fn start_with(folder: &Path, config: &str) -> Self {
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
