//! `openapi`, `completions`, `healthcheck`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use expect_test::expect;
use testkit::{Folder, Process, Request, Signal};

#[tokio::test]
async fn openapi_prints_what_a_service_at_the_same_addresses_serves() {
    for deployment in ["production", "staging"] {
        let folder = Folder::new();
        let server = folder.serve(&format!("serve --deployment {deployment}"));
        let (store, messages) = (server.address("store"), server.address("messages"));

        let served = Request::new(store, "GET", "/openapi.json").send().await;

        let line = format!("openapi --listen {store} --messages-listen {messages} --deployment {deployment}");
        assert!(folder.succeed(&line).trim_end() == served.body.trim_end(), "{deployment}");
        assert_eq!(served.json()["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    }
}

#[test]
fn openapi_needs_no_database_and_knows_the_public_addresses() {
    let folder = Folder::new();

    let printed = folder.succeed(
        "openapi --base-url https://api.example.com/v1 --messages-base-url https://m.example.com/v1 \
         --staging-base-url https://staging.example.com/v1",
    );

    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let servers = document["servers"].to_string();
    assert!(servers.contains("https://api.example.com/v1") && servers.contains("https://staging.example.com/v1"));
    assert!(printed.contains("https://m.example.com/v1"));
    assert!(!folder.path("petstore-data").exists());
}

#[test]
fn the_completions_for_bash_are_accepted_by_it_and_complete() {
    let folder = Folder::new();
    folder.write("completions.bash", folder.succeed("completions bash"));

    let checked = Process::start(folder.program("bash").args(["-n", "completions.bash"])).end();
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));

    let script = "source completions.bash; COMP_WORDS=(petstore key ro); COMP_CWORD=2; _petstore petstore ro key; \
                  echo ${COMPREPLY[@]}";
    let completed = Process::start(folder.program("bash").args(["-c", script])).end();
    assert_eq!((completed.stdout.as_str(), completed.stderr.as_str()), ("rotate\n", ""));
}

#[test]
fn every_shell_gets_its_completions() {
    let folder = Folder::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = folder.succeed(&format!("completions {shell}"));
        assert!(script.contains("quickstart") && script.contains("healthcheck"), "{shell}");
    }
}

#[test]
fn a_service_that_is_ready_is_healthy_at_whichever_door() {
    let folder = Folder::new();
    let server = folder.serve("serve");
    for (door, flag) in [("ops", "ops-listen"), ("store", "listen"), ("messages", "messages-listen")] {
        let address = server.address(door);
        let healthy = folder.run(&format!("healthcheck --listeners {door} --{flag} {address}"));
        assert_eq!((healthy.code, healthy.stdout.as_str(), healthy.stderr.as_str()), (Some(0), "", ""), "{door}");
    }
    let unspecified = format!("healthcheck --ops-listen 0.0.0.0:{}", server.address("ops").port());
    folder.succeed(&unspecified);
}

#[test]
fn where_nothing_listens_nothing_is_healthy() {
    let folder = Folder::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();

    let ended = folder.run(&format!("healthcheck --ops-listen {free}"));

    expect![[r#"
        exit 1
        error: ADDRESS is not ready: Connection refused (os error 111)
    "#]]
    .assert_eq(&ended.shown().replace(&free, "ADDRESS"));
}

#[test]
fn a_service_that_drains_is_not_healthy() {
    let folder = Folder::new();
    let server = folder.serve("serve --drain-delay 1h");
    let address = server.address("ops").to_string();
    let check = format!("healthcheck --ops-listen {address}");
    folder.succeed(&check);

    server.signal(Signal::TERM);
    let signalled = Instant::now();
    while folder.run(&check).code == Some(0) {
        assert!(signalled.elapsed() < Duration::from_secs(30), "it is healthy");
    }

    expect![[r#"
        exit 1
        error: ADDRESS is not ready: status 503: The service is not ready: it is about to stop.
    "#]]
    .assert_eq(&folder.run(&check).shown().replace(&address, "ADDRESS"));
}

#[test]
fn a_server_that_never_answers_is_not_healthy() {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();

    let address = silent.local_addr().unwrap();
    let ended = folder.run(&format!("healthcheck --ops-listen {address}"));

    assert_eq!(ended.shown(), format!("exit 1\nerror: {address} is not ready: no response within 3 s\n"));
}

#[test]
fn a_server_that_answers_a_byte_at_a_time_is_not_healthy() {
    let folder = Folder::new();
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = slow.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = slow.accept().unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        for byte in answer.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let began = Instant::now();

    let ended = folder.run(&format!("healthcheck --ops-listen {address}"));

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn what_speaks_no_http_is_not_healthy() {
    let folder = Folder::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let asked = stream.read(&mut [0; 1_024]).unwrap();
        assert!(asked > 0);
        stream.write_all(b"220 ready").unwrap();
    });

    let ended = folder.run(&format!("healthcheck --ops-listen {address}"));

    let why = "the response is not HTTP";
    assert_eq!(ended.shown(), format!("exit 1\nerror: {address} is not ready: {why}\n"));
}
