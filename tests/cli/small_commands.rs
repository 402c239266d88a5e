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
    assert!(script.contains("compopt -o filenames") && script.contains("compopt -o plusdirs"));
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
    let succeeds = |check: &str| _ = within(TIMEOUT, check, || folder.run(check).shown() == "exit 0\n");
    for (listener, flag) in [("ops", "ops-listen"), ("store", "listen"), ("messages", "messages-listen")] {
        let address = server.address(listener);
        succeeds(&format!("healthcheck --listeners {listener} --{flag} {address}"));
    }
    let port = server.address("ops").port();
    for host in ["0.0.0.0", "localhost", ""] {
        succeeds(&format!("healthcheck --ops-listen {host}:{port}"));
    }
}

#[test]
fn draining_service_is_not_healthy() {
    let (folder, server) = Folder::serving("serve --drain-delay 1h");
    let address = server.address("ops").to_string();
    let check = format!("healthcheck --ops-listen {address}");
    within(TIMEOUT, "being ready", || folder.run(&check).code == Some(0));

    server.signal(Signal::TERM);
    let why = "is not ready: status 503: The service is not ready: it is about to stop.";
    within(TIMEOUT, "the drain", || folder.run(&check).shown() == format!("exit 1\nerror: {address} {why}\n"));
}

#[test]
fn other_servers_are_not_healthy() {
    let check_fails = |address: SocketAddr, why| {
        let refused = format!("exit 1\nerror: {address} is not ready: {why}\n");
        let check = || Folder::new().run(&format!("healthcheck --ops-listen {address}")).shown();
        within(TIMEOUT, why, || {
            let shown = check();
            eprint!("{shown}");
            shown == refused
        });
    };
    check_fails(([127, 0, 0, 1], free_port()).into(), "Connection refused (os error 111)");

    let silent: fn(TcpStream) = |mut stream| _ = stream.read_to_end(&mut Vec::new());
    let slow: fn(TcpStream) = |mut stream| {
        // The line does not end.
        b"HTTP/1.1 200 OK".iter().cycle().take_while(|byte| stream.write_all(&[**byte]).is_ok()).for_each(|_| {
            std::thread::sleep(Duration::from_millis(300));
        });
    };
    let not_http: fn(TcpStream) = |mut stream| {
        _ = stream.read(&mut [0; 1_024]).and_then(|_| stream.write(b"220 ready\r\n"));
    };
    let late = "no response within 3s";
    for (serve, why) in [(silent, late), (slow, late), (not_http, "the response has an invalid status line")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().map(Result::unwrap).for_each(serve));
        check_fails(address, why);
    }
}
