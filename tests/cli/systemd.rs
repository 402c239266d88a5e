//! Notifications to a supervisor like systemd, and the sockets that it passes.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;

use expect_test::expect;
use testkit::postgres::free_port;
use testkit::{Folder, Process, Request, Server, Signal, TIMEOUT, eventually, petstore};

#[test]
fn supervisor_is_notified_of_start_and_stop() {
    let folder = Folder::new();
    let by_path = UnixDatagram::bind(folder.path("notify")).unwrap();
    let path = folder.path("notify").to_str().unwrap().to_owned();
    let name = format!("petstore-test-{}", std::process::id());
    let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
    let by_name = UnixDatagram::bind_addr(&abstract_address).unwrap();

    for (supervisor, address) in [(by_path, path), (by_name, format!("@{name}"))] {
        supervisor.set_read_timeout(Some(TIMEOUT)).unwrap();
        let told = || {
            let mut state = [0; 64];
            let length = supervisor.recv(&mut state).expect("the service notifies the supervisor");
            String::from_utf8_lossy(&state[..length]).into_owned()
        };
        let mut serve =
            folder.command("serve --listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --listeners store,messages");
        let server = Server::start(serve.env("NOTIFY_SOCKET", address));

        assert_eq!(told(), "READY=1");
        server.signal(Signal::TERM);
        assert_eq!(told(), "STOPPING=1");
        assert_eq!(server.end().code, Some(0));
    }
}

#[test]
fn missing_supervisor_does_not_prevent_serving() {
    let folder = Folder::new();
    let mut serve = folder.command("serve --listen 127.0.0.1:0 --listeners store");
    let server = Server::start(serve.env("NOTIFY_SOCKET", folder.path("nobody")));

    let line = server.logged("cannot notify the supervisor");
    assert_eq!((&line["level"], &line["state"]), (&"WARN".into(), &"READY=1".into()));
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

/// `systemctl reload` sends SIGHUP, which reloads certificates (`bounded_http::Tls`).
#[tokio::test]
async fn reload_does_not_end_a_service_without_certificates() {
    let folder = Folder::new();
    // Under nohup, the signal is ignored by all children.
    let mut serve = folder.program("env");
    serve.arg("--default-signal=HUP").arg(petstore());
    serve.args(["serve", "--log-format=json", "--listen=127.0.0.1:0", "--listeners=store"]);
    let alone = Server::start(&mut serve);
    assert_eq!(alone.end_by(Signal::HUP).code, None, "without a supervisor, a closed terminal ends the service");

    let supervisor = UnixDatagram::bind(folder.path("notify")).unwrap();
    let supervised = Server::start(serve.env("NOTIFY_SOCKET", folder.path("notify")));
    assert!(supervised.catches(Signal::HUP));
    supervised.signal(Signal::HUP);
    let live = Request::new(supervised.store(), "GET", "/livez").send().await;
    assert_eq!(live.status(), 200);
    assert_eq!(supervised.end_by(Signal::TERM).code, Some(0));
    drop(supervisor);
}

/// Like systemd, `systemd-socket-activate` opens the sockets, waits for a client, and becomes the service. The filters of
/// systemd-nspawn and Docker deny calls that duplicate the descriptors of a process.
#[tokio::test]
async fn listeners_use_activated_sockets() {
    let (folder, key) = Folder::with_key();
    let (store, messages) = (free_port(), free_port());
    let sockets = [format!("--listen=127.0.0.1:{store}"), format!("--listen=127.0.0.1:{messages}")];
    // The passed sockets replace these addresses.
    let serve = "serve --listen 127.0.0.1:1 --messages-listen 127.0.0.1:1 --ops-listen 127.0.0.1:0";
    let mut activate = folder.program("strace");
    let denied = "inject=pidfd_open,pidfd_getfd:error=EPERM";
    activate.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", denied, "systemd-socket-activate"]);
    activate.args(sockets).arg("--fdname=store:messages").arg(petstore()).args(serve.split(' '));

    let first = client_of(store);
    // The activator writes a line of its own first.
    let server = Server::start_skipping(&mut activate, |line| !line.starts_with('{'));

    assert_eq!(server.address("store").port(), store);
    assert_eq!(server.address("messages").port(), messages);
    assert_ne!(server.address("ops").port(), 0, "a listener without a socket opens its own");
    let first = first.join().unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "the service answers the client that came first: {first}");
    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[test]
fn unknown_activated_socket_is_an_error() {
    let folder = Folder::new();
    let refused = |names: &str, flags: &str| {
        let port = free_port();
        let mut activate = folder.program("systemd-socket-activate");
        activate.arg(format!("--listen=127.0.0.1:{port}")).arg(format!("--fdname={names}")).arg(petstore());
        let client = client_of(port);
        let ended = Process::start(activate.arg("serve").args(flags.split_whitespace())).end();
        client.join().unwrap();
        let last = ended.stderr.lines().last().unwrap();
        let line: serde_json::Value = serde_json::from_str(last).unwrap();
        format!("exit {:?}: {}\n", ended.code.unwrap(), line["message"].as_str().unwrap())
    };
    let told = [refused("shop", ""), refused("messages", "--listeners store")].concat();
    expect![[r#"
        exit 1: unknown socket `shop`: set its FileDescriptorName to store, messages or ops
        exit 1: a socket is passed for the messages listener, which `listeners` does not open
    "#]]
    .assert_eq(&told);
}

#[test]
fn activated_socket_that_does_not_listen_is_an_error() {
    let folder = Folder::new();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    let passed = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=store exec \"$0\" serve --listeners store 3<&0";
    for socket in [OwnedFd::from(datagrams), OwnedFd::from(connected)] {
        let mut serve = folder.program("sh");
        let ended = Process::start(serve.args(["-c", passed, petstore()]).stdin(Stdio::from(socket))).end();
        assert_eq!(ended.code, Some(1));
        let why = "cannot use the socket passed for the store listener: not a listening TCP socket: use ListenStream=";
        assert_eq!(ended.log(), format!("ERROR {why}\n"));
    }
    let mut serve = folder.program("sh");
    let server = Server::start(serve.args(["-c", passed, petstore()]).stdin(Stdio::from(OwnedFd::from(listening))));
    assert_eq!(server.end_by(Signal::TERM).code, Some(0), "control");
}

#[test]
fn sockets_of_another_process_are_ignored() {
    let folder = Folder::new();
    let mut serve = folder.command("serve --listen 127.0.0.1:0 --listeners store");
    serve.envs([("LISTEN_PID", "1"), ("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "store")]);
    let server = Server::start(&mut serve);
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

/// Requests `/livez` as soon as the port is open, and returns the response.
fn client_of(port: u16) -> std::thread::JoinHandle<String> {
    use std::io::{Read, Write};
    std::thread::spawn(move || {
        let mut answer = String::new();
        let mut stream = eventually(TIMEOUT, "opening the port", || TcpStream::connect(("127.0.0.1", port)).ok());
        // A service that refuses its sockets ends without an answer.
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
        answer
    })
}
