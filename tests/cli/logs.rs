//! The log of a running service.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Connection, Folder, Request, TIMEOUT, eventually, petstore, succeed, until};

/// The id of the trace in the examples of W3C Trace Context.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn json_log_on_a_terminal_has_no_other_lines() {
    let folder = Folder::new();
    folder.write("file", "");
    let mut python = folder.program("python3");
    python.args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])", petstore(), "serve", "--log-format", "json"]);
    let shown = succeed(python.args(["--data-dir", "file"]).env("PETSTORE_TYPO", "1"));
    let levels = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["level"].clone());
    assert_eq!(levels.collect::<Vec<_>>(), ["WARN", "ERROR"], "{shown}");
}

#[tokio::test]
async fn log_requests_logs_every_request_but_health_checks() {
    let folder = Folder::new();
    folder.succeed("account create ada@example.com --deployment staging");
    let (key, server) = (folder.key(), folder.serve("serve --log-requests --log-format json"));
    let store = server.address("store");

    let request = Request::new(store, "GET", "/v1/pets/7?x=secret").key(&key);
    let request =
        request.header("x-request-id", "mine").header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    request.send().await;
    let line = server.logged("request");

    assert_eq!(line["request_id"], "mine");
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!((&line["account"], &line["key"]), (&1.into(), &1.into()));
    assert_eq!((&line["method"], &line["status"]), (&Value::from("GET"), &Value::from(400)));
    assert_eq!((&line["route"], &line["path"]), (&Value::from("/v1/pets/{petId}"), &Value::from("/v1/pets/7")));
    assert!(line["seconds"].as_f64().unwrap() > 0.0, "{line}");
    assert!(!line.to_string().contains("secret"), "{line}");

    Request::new(store, "GET", "/readyz").send().await;
    Request::new(store, "GET", "/elsewhere").send().await;
    let line = server.logged("request");
    assert_eq!((&line["route"], &line["account"]), (&Value::from("unmatched"), &Value::Null));

    let delayed = Request::new(store, "GET", "/v1/pets").key(&key).header("prefer", "delay=30000");
    let mut client = TcpStream::connect(store).unwrap();
    client.write_all(&delayed.bytes()).unwrap();
    // A request whose client leaves before the service has read it never begins.
    until(async || server.metric("petstore_http_requests_in_flight") == 2.0).await;
    drop(client);
    let mut lines = std::iter::repeat_with(|| server.logged("request"));
    let line = lines.find(|line| line["route"] != "/metrics").unwrap();
    assert_eq!((&line["route"], &line["status"]), (&Value::from("/v1/pets"), &Value::from(499)), "the client is gone");
    assert_eq!(line["simulated"], true);
}

#[test]
fn lines_have_priorities_in_the_journal_of_systemd_only() {
    let first_line = |stream: &str| {
        let command = format!("JOURNAL_STREAM={stream} '{}' serve --existing-only --data-dir missing", petstore());
        let failed = Command::new("sh").args(["-c", &command]).output().unwrap();
        String::from_utf8(failed.stderr).unwrap()
    };
    assert!(first_line("$(stat -Lc %d:%i /proc/self/fd/2)").starts_with("<3>{"));
    assert!(first_line("1:1").starts_with('{'));
}

#[test]
fn connections_beyond_the_limit_are_logged() {
    // A client that sends nothing for 100 ms gets no response.
    let (_folder, server, refused) = eventually(TIMEOUT, "a response", || {
        let (folder, server) = Folder::serving("serve --max-connections 1");
        let request = Request::new(server.store(), "GET", "/livez");
        let mut held = Connection::open(server.store()).unwrap();
        assert_eq!(held.send(&request).unwrap().status(), 200);
        // hyper's client discards a response that arrives before it has sent its request.
        let refused = request.try_send_blocking().ok()?;
        Some((folder, server, refused))
    });
    let line = server.logged("request refused");
    assert_eq!((refused.status(), refused.header("x-request-id")), (503, line["request_id"].as_str()));
    assert_eq!(line["cause"], "all connections are taken");
}

#[tokio::test]
async fn request_log_names_the_client() {
    let folder = Folder::with_account();
    let serve = |flags: &str| folder.serve(&format!("serve --log-requests --log-format json {flags}"));
    let (plain, trusting) = (serve(""), serve("--trusted-proxy 127.0.0.1"));
    let long = "x".repeat(300);
    for (server, header, value, address, user_agent) in [
        (&trusting, "x-forwarded-for", "203.0.113.9, 192.0.2.60", "192.0.2.60", None),
        (&plain, "x-forwarded-for", "192.0.2.60", "127.0.0.1", None),
        (&plain, "user-agent", "Mozilla/5.0 (X11; Linux x86_64)", "127.0.0.1", Some("Mozilla/5.0 (X11; Linux x86_64)")),
        (&plain, "user-agent", r#"a"b\"#, "127.0.0.1", Some(r#"a"b\"#)),
        (&plain, "user-agent", &long, "127.0.0.1", Some(&long[..256])),
        (&plain, "user-agent", "caf\u{e9}", "127.0.0.1", Some("caf\u{e9}")),
    ] {
        Request::new(server.store(), "GET", "/v1/elsewhere").header(header, value).send().await;
        let line = server.logged("request");
        assert_eq!(
            (line["client_address"].as_str(), line["user_agent"].as_str()),
            (Some(address), user_agent),
            "{value}"
        );
    }
}

#[tokio::test]
async fn proxy_that_sends_only_forwarded_is_logged_once() {
    let folder = Folder::with_account();
    let server = folder.serve("serve --log-requests --log-format json --trusted-proxy 127.0.0.1");
    for _ in 0..2 {
        Request::new(server.store(), "GET", "/v1/elsewhere").header("forwarded", "for=192.0.2.60").send().await;
    }
    let log = server.end_by(Signal::TERM).stderr;
    for (part, times) in
        [("trusted proxy sends Forwarded without X-Forwarded-For", 1), (r#""client_address":"127.0.0.1""#, 2)]
    {
        assert_eq!(log.matches(part).count(), times, "{part}: {log}");
    }
}

#[tokio::test]
async fn keys_that_clients_send_elsewhere_are_hidden() {
    let folder = Folder::with_account();
    let (key, server) = (folder.key(), folder.serve("serve --log-requests"));
    let request = Request::new(server.address("store"), "GET", &format!("/v1/{key}"));
    let request = request.header("x-request-id", &format!("a-{key}")).header("user-agent", &format!("\"{key}\" b"));
    let answer = request.send().await;
    assert_eq!(answer.header("x-request-id"), Some(format!("a-{key}").as_str()), "the client gets its own id");

    let line = server.logged("request");
    assert_eq!(line["request_id"], "a-pet_live_[hidden]");
    assert_eq!(line["path"], "/v1/pet_live_[hidden]");
    assert_eq!(line["user_agent"], "\"pet_live_[hidden]\" b");

    // Mail programs encode links.
    let encoded = format!("/password/{}", key.replace('_', "%5F"));
    Request::new(server.address("store"), "GET", &encoded).send().await;
    assert_eq!(server.logged("request")["path"], "/password/pet_live_[hidden]");
    let log = server.end_by(Signal::TERM).stderr;
    assert!(!log.contains(&key["pet_live_".len()..]), "{log}");
}

#[tokio::test]
async fn control_characters_of_clients_are_escaped() {
    let (_folder, server) = Folder::serving("serve --log-requests");
    let request = "GET /é\u{9b}31m\u{85} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    testkit::raw(server.store(), request.as_bytes()).await;
    let log = server.end_by(Signal::TERM).stderr;
    assert!(log.contains(r"/é\u009b31m\u0085"), "{log:?}");
    assert!(log.chars().all(|character| character == '\n' || !character.is_control()), "{log:?}");
    let line = log.lines().find(|line| line.contains("31m")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["path"], "/é\u{9b}31m\u{85}");
}

#[tokio::test]
async fn signals_change_the_level_while_the_service_runs() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");
    let store = server.address("store");

    Request::new(store, "GET", "/v1/elsewhere").header("x-request-id", "before").send().await;
    server.signal(Signal::USR1);
    assert_eq!(server.logged("log level changed")["log_level"], "debug");
    Request::new(store, "GET", "/v1/elsewhere").header("x-request-id", "debug").send().await;
    assert_eq!(server.logged("request")["request_id"], "debug", "the request before was not logged");

    server.signal(Signal::USR2);
    assert_eq!(server.logged("log level changed")["log_level"], "info");
    Request::new(store, "GET", "/v1/elsewhere").send().await;
    for (signal, level) in
        [(Signal::USR2, "warn"), (Signal::USR2, "error"), (Signal::USR1, "warn"), (Signal::USR1, "info")]
    {
        server.signal(signal);
        let line = server.logged("log level changed");
        assert_eq!((&line["log_level"], &line["level"]), (&level.into(), &level.to_uppercase().into()));
    }
    let rest = server.end_by(Signal::TERM).log();
    assert!(rest.contains("INFO stopping") && !rest.contains("INFO request"), "{rest}");
}
