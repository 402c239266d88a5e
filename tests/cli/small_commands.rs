//! `openapi`, `completions`, `manual`, `healthcheck`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use testkit::postgres::free_port;
use testkit::{Folder, Process, Request, Signal, TIMEOUT, within};

#[tokio::test]
async fn openapi_prints_the_served_document() {
    for deployment in ["production", "staging"] {
        let folder = Folder::new();
        let server = folder.serve(&format!("serve --deployment {deployment}"));
        let (store, messages) = (server.address("store"), server.address("messages"));

        let served = Request::new(store, "GET", "/openapi.json").send().await;

        let line = format!("openapi --listen {store} --messages-listen {messages}");
        assert!(folder.succeed(&line).trim_end() == served.body.trim_end(), "{deployment}");
        assert_eq!(served.json()["openapi"], "3.1.0");

        let served = Request::new(store, "GET", "/openapi-3.0.json").send().await;
        assert!(folder.succeed(&format!("{line} --openapi-version 3.0")).trim_end() == served.body.trim_end());
        assert_eq!(served.json()["openapi"], "3.0.3");
    }
}

#[test]
fn openapi_needs_no_database() {
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
fn completions_exist_for_every_shell_and_bash_completes() {
    let folder = Folder::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = folder.succeed(&format!("completions {shell}"));
        assert!(script.contains("quickstart") && script.contains("healthcheck"), "{shell}");
    }
    let script = folder.succeed("completions bash");
    assert!(
        script.contains("compopt -o filenames") && script.contains("compopt -o plusdirs"),
        "it completes files and folders"
    );
    folder.write("completions.bash", script);
    let script = "source completions.bash; COMP_WORDS=(petstore key ro); COMP_CWORD=2; _petstore petstore ro key; \
                  echo ${COMPREPLY[@]}";
    let completed = Process::start(folder.program("bash").args(["-c", script])).end();
    assert_eq!(completed.shown(), "exit 0\nrotate\n");
}

#[test]
fn manual_has_a_page_for_each_command() {
    let folder = Folder::new();

    folder.succeed("manual share/man1");

    let pages = folder.names("share/man1");
    assert!(pages.len() >= 29, "{pages:?}");
    for page in ["petstore.1", "petstore-serve.1", "petstore-key-rotate.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} in {pages:?}");
    }
    let serve = folder.read("share/man1/petstore-serve.1");
    assert!(serve.starts_with(".ie") && serve.contains(".SH NAME\n") && serve.contains("relay"), "{serve}");

    folder.write("file", "");
    folder.fails("manual file/man1", "cannot write the manual pages to file/man1: Not a directory (os error 20)");
}

#[test]
fn ready_service_is_healthy_at_any_listener() {
    let (folder, server) = Folder::serving("serve");
    for (listener, flag) in [("ops", "ops-listen"), ("store", "listen"), ("messages", "messages-listen")] {
        let address = server.address(listener);
        assert_eq!(folder.run(&format!("healthcheck --listeners {listener} --{flag} {address}")).shown(), "exit 0\n");
    }
    let port = server.address("ops").port();
    for host in ["0.0.0.0", "localhost", ""] {
        folder.succeed(&format!("healthcheck --ops-listen {host}:{port}"));
    }
}

#[test]
fn draining_service_is_not_healthy() {
    let (folder, server) = Folder::serving("serve --drain-delay 1h");
    let address = server.address("ops").to_string();
    let check = format!("healthcheck --ops-listen {address}");
    folder.succeed(&check);

    server.signal(Signal::TERM);
    within(TIMEOUT, "the drain", || folder.run(&check).code == Some(1));

    let why = "status 503: The service is not ready: it is about to stop.";
    folder.fails(&check, &format!("{address} is not ready: {why}"));
}

#[test]
fn other_servers_are_not_healthy() {
    let check_fails = |address: SocketAddr, why| {
        let check = format!("healthcheck --ops-listen {address}");
        Folder::new().fails(&check, &format!("{address} is not ready: {why}"));
    };
    check_fails(([127, 0, 0, 1], free_port()).into(), "Connection refused (os error 111)");

    let silent: fn(TcpListener) = |listener| _ = listener.accept().unwrap().0.read_to_end(&mut Vec::new());
    let slow: fn(TcpListener) = |listener| {
        let mut stream = accept(&listener);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        answer.iter().cycle().take_while(|byte| stream.write_all(&[**byte]).is_ok()).for_each(|_| {
            std::thread::sleep(Duration::from_millis(300));
        });
    };
    let not_http: fn(TcpListener) = |listener| accept(&listener).write_all(b"220 ready\r\n").unwrap();
    for (serve, why) in [
        (silent, "no response within 3s"),
        (slow, "no response within 3s"),
        (not_http, "the response has an invalid status line"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener));
        check_fails(address, why);
    }
}

/// Accepts a connection and reads a request.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 1_024]).unwrap() > 0);
    stream
}
