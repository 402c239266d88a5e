//! Promise 29: restarts drop no request behind a proxy that polls `/readyz`.
//!
//! Two processes share a database behind HAProxy (Debian's package, which `scripts/test` installs).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::postgres::free_port;
use testkit::trial::{self, is_full, rounds};
use testkit::{Connection, Process, Request, Server, Shop, Signal, TIMEOUT, server_program, succeed, within};
use verification::Load;

/// Interval of HAProxy's health checks.
const CHECK: Duration = Duration::from_millis(100);

/// Longer than HAProxy takes to notice that a process is not ready.
fn drain_delay() -> &'static str {
    if is_full() { "1s" } else { "10s" }
}

const CONFIG: &str = "\
global
    stats socket ipv4@127.0.0.1:{stats} level user

defaults
    mode http
    timeout connect {limit}
    timeout client 60s
    timeout server 60s
    timeout check {limit}
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
    let rounds = rounds(2);
    let (accepted, failed) = restart(rounds, Signal::TERM, if is_full() { 2_000.0 } else { 100.0 });
    assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), failed.first());
    trial::measured(&format!("{rounds} restarts under {accepted} requests, 0 of them failed"));
}

/// Control: requests fail if processes are killed.
#[test]
fn killed_process_fails_requests() {
    // A killed process may have had no request.
    let failed = |_| restart(1, Signal::KILL, 1_000.0).1;
    assert!((0..20).map(failed).any(|failed| !failed.is_empty()));
}

/// With the HAProxy configuration of `scripts/cluster`, clients get the responses of petstore while a process is alive.
#[test]
fn requests_in_flight_outlive_readiness() {
    let Shop { database, key } = Shop::on_sqlite();
    let names =
        ["primary", "standbys", "store", "messages", "haproxy_stats", "pg1", "pg2", "pg3", "pg1_api", "pg2_api"];
    let names = names.into_iter().chain(["pg3_api", "petstore1_store", "petstore2_store", "petstore3_store"]);
    let names = names.chain(["petstore1_messages", "petstore2_messages", "petstore3_messages"]);
    let ports: BTreeMap<_, _> = names.map(|name| (name, free_port())).collect();
    let serve = |store: &str, messages: &str| {
        let listen = format!("--listen 127.0.0.1:{} --messages-listen 127.0.0.1:{}", ports[store], ports[messages]);
        let listeners = "--listeners store,messages,ops --ops-listen 127.0.0.1:0";
        Server::start(database.petstore(&format!("serve {listeners} {listen} --drain-delay 60s")))
    };
    // The third process and the database servers are never started.
    let services = [serve("petstore1_store", "petstore1_messages"), serve("petstore2_store", "petstore2_messages")];
    let _proxy = start_haproxy(&cluster_config(&ports));
    let statistics = || servers(ports["haproxy_stats"]);
    let ready = || statistics().into_iter().filter(|server| server.proxy == "store" && server.is_up).count();
    within(TIMEOUT, "the proxy", || ready() == 2);

    // Each process has one request, whose body is incomplete.
    let request = Request::new(local(ports["store"]), "POST", "/v1/pets").key(&key);
    let request = request.json(r#"{"name":"Rex","categoryId":1}"#).header("connection", "close").bytes();
    let (start, rest) = request.split_at(request.len() - 1);
    let connections = [(); 2].map(|()| {
        let mut connection = Connection::open(local(ports["store"])).unwrap();
        connection.write(start).unwrap();
        connection
    });
    let in_flight = || statistics().iter().filter(|server| server.proxy == "store" && server.sessions == 1).count();
    within(TIMEOUT, "sending", || in_flight() == 2);
    for (left, service) in [(1, &services[0]), (0, &services[1])] {
        service.signal(Signal::TERM);
        within(TIMEOUT, "noticing", || ready() == left);
    }
    for mut connection in connections {
        connection.write(rest).unwrap();
        let response = connection.read_response().unwrap();
        assert_eq!(response.status(), 201, "{response:?}");
    }

    // No process is ready, but both are alive.
    for listener in ["store", "messages"] {
        let response = Request::new(local(ports[listener]), "GET", "/v1/nothing").send_blocking();
        assert_eq!((response.status(), response.code().as_str()), (404, "not_found"), "{response:?}");
    }
    trial::measured("2 requests in flight on processes that are not ready, 0 lost");
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Returns the HAProxy configuration of `scripts/cluster`.
fn cluster_config(ports: &BTreeMap<&str, u16>) -> String {
    let script = "import json, sys; sys.path.insert(0, 'verification'); from cluster.haproxy import config; \
                  print(config(json.loads(sys.argv[1])))";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", script, &serde_json::to_string(ports).unwrap()]);
    succeed(python.current_dir(testkit::root()))
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
    let Ok(mut stream) = TcpStream::connect(local(port)) else { return Vec::new() };
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

/// Restarts the two processes in turn, under load. Returns the number of accepted requests, and each that failed.
fn restart(rounds: u32, signal: Signal, rate: f64) -> (usize, Vec<String>) {
    let Shop { database, key } = Shop::on_sqlite();
    let [front, stats, a, b] = [(); 4].map(|()| free_port());
    let serve = |port: u16| {
        let listeners = "--listeners store,ops --ops-listen 127.0.0.1:0";
        let command = format!("serve {listeners} --listen 127.0.0.1:{port} --drain-delay {}", drain_delay());
        Server::start(database.petstore(&command))
    };
    let mut services = [serve(a), serve(b)];
    let config = CONFIG.replace("{front}", &front.to_string()).replace("{stats}", &stats.to_string());
    let config = config.replace("{check}", &CHECK.as_millis().to_string());
    let config = config.replace("{limit}", if is_full() { "1s" } else { "60s" });
    let _proxy = start_haproxy(&config.replace("{a}", &a.to_string()).replace("{b}", &b.to_string()));
    let both_are_up = || servers(stats).into_iter().filter(|server| server.is_up).count() == 2;
    let through = Load {
        // On a busy disk, a write may wait for that of the other process for longer than the service allows.
        request: if is_full() { Load::lists_and_creates } else { Load::lists },
        rate: Some(rate),
        ..Load::new(local(front), &key, if is_full() { 64 } else { 10 }, Duration::from_millis(500))
    };
    within(TIMEOUT, "the proxy", || {
        let outcome = through.run();
        outcome.failed.is_empty() && outcome.refused.is_empty() && !outcome.accepted.is_empty()
    });

    let (mut failed, mut accepted) = (Vec::new(), 0);
    for round in 0..rounds as usize {
        // Until the process has restarted, unless the machine is busy.
        let running = Load { time: Duration::from_secs(if is_full() { 3 } else { 12 }), ..through.clone() }.start();
        thread::sleep(Duration::from_millis(200));
        services[round % 2].signal(signal);
        services[round % 2].ended(TIMEOUT);
        services[round % 2] = serve([a, b][round % 2]);
        // HAProxy must notice the new process before the other one stops, and the old one before that.
        thread::sleep(CHECK * 5);
        within(TIMEOUT, "the new process", both_are_up);
        let outcome = running.join().unwrap();
        accepted += outcome.accepted.len();
        failed.extend(outcome.failed);
        failed.extend(outcome.refused.iter().map(|took| format!("503 after {took:?}")));
    }
    assert!(accepted > rounds as usize * 20, "only {accepted} requests were answered: little was tested");
    (accepted, failed)
}

/// Starts HAProxy, which is killed on drop. Returns its configuration file too.
fn start_haproxy(config: &str) -> (Process, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, config).unwrap();
    (Process::start(server_program("haproxy").args(["-db", "-f"]).arg(file.path())), file)
}
