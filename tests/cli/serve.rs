//! `serve`: listeners, deployments, signals.

use std::net::TcpListener;
use std::process::Stdio;

use expect_test::expect;
use testkit::{Database, Folder, Process, Server, Signal, TIMEOUT, eventually, fields, petstore, succeed};

#[test]
fn listening_line_has_the_bound_addresses() {
    let (_folder, server) = Folder::serving("serve");

    let expected = ["timestamp", "level", "message", "store", "messages", "ops", "deployment", "version"];
    assert_eq!(fields(&server.listening), expected);
    for listener in ["store", "messages", "ops"] {
        assert_ne!(server.address(listener).port(), 0);
    }
    assert_eq!(server.listening["deployment"], "production");
}

#[test]
fn sigterm_and_sigint_stop_with_success() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::new();
        let ended = folder.serve("serve").end_by(signal);

        assert_eq!(ended.shown_log(), "exit 0\nINFO stopping\n");
        let log = folder.path("petstore-data/petstore.db-wal").metadata().unwrap();
        assert_eq!(log.len(), 0, "the write-ahead log was merged into the database");
    }
}

#[test]
fn second_signal_skips_the_drain_delay() {
    let (_folder, server) = Folder::serving("serve --drain-delay 1h");
    server.signal(Signal::TERM);
    // Two signals of one kind that arrive together are one.
    server.logged("stopping");

    let ended = server.end_by(Signal::TERM);

    expect![[r#"
        exit 0
        INFO stopping
        INFO closing all connections
    "#]]
    .assert_eq(&ended.shown_log());
}

#[test]
fn after_a_failed_sync_nothing_starts_beside_other_processes() {
    let folder = Folder::with_account();
    folder.write("petstore-data/petstore.sync-failed", "");
    // Holds the lock that an export does. Not in this process: another test that starts a program would keep it for a moment.
    let mut flock = folder.program("flock");
    flock.args(["--shared", "--no-fork", "petstore-data", "sh", "-c", "echo locked; exec cat"]).stdin(Stdio::piped());
    let mut export = Process::start(&mut flock);
    assert_eq!(export.next_line().as_deref(), Some("locked\n"));
    for command in ["serve", "key list"] {
        let shown = folder.run(command).shown();
        let why = "petstore-data: a sync has failed, and other processes still use the database: they must end first";
        assert!(shown.starts_with("exit 1\n") && shown.contains(why), "{command}: {shown}");
    }

    export.kill();
    let server = folder.serve("serve");
    assert!(!folder.path("petstore-data/petstore.sync-failed").exists());
    server.end_by(Signal::TERM);
}

#[tokio::test]
async fn listeners_selects_what_is_opened() {
    let (folder, key) = Folder::with_key();

    let server = folder.serve("serve --listeners messages,ops");

    assert!(server.listening.get("store").is_none(), "{}", server.listening);
    assert_eq!(server.send_message(&key, "Hello").status(), 202);
    let server = folder.serve("serve --listeners store");
    assert!(server.listening.get("messages").is_none() && server.listening.get("ops").is_none());
    assert_eq!(server.request("/v1/pets", &key).await.status(), 200);
}

#[test]
fn deployment_is_chosen_once() {
    let (folder, server) = Folder::serving("serve --deployment staging");
    assert_eq!(server.listening["deployment"], "staging");
    server.end_by(Signal::TERM);

    assert_eq!(folder.serve("serve").listening["deployment"], "staging");
    let why = "the database is a staging one and cannot be opened as production";
    folder.fails_to_serve("serve --deployment production --listen 127.0.0.1:0", why);
    // Commands create production.
    for line in ["migrate", "account create ada@example.com", "pets import -"] {
        let folder = Folder::new();
        folder.succeed(line);
        let why = "the database is a production one and cannot be opened as staging";
        folder.fails("key list --deployment staging", why);
    }
}

#[tokio::test]
async fn first_start_names_the_sign_up_page() {
    let (folder, server) = Folder::serving("serve");
    let address = server.address("store");
    let first = format!("There is no account yet. Create the first one at http://{address}/sign-up");
    let open = "registration is open: visitors can create an account (--registration)";
    assert_eq!(server.before, [&first, open]);
    assert_eq!(server.request("/sign-up", "").await.status(), 200);
    drop(server);

    expect![[r#"
        [
            "There is no account yet, and registration is closed. Create the first one with `petstore account create EMAIL --password-stdin`",
        ]
    "#]]
    .assert_debug_eq(&folder.serve("serve --registration closed").before);
    assert_eq!(folder.serve("serve --listeners messages").before, [""; 0], "this listener has no pages");

    folder.succeed("account create ada@example.com");
    assert_eq!(folder.serve("serve").before, [open]);
    assert_eq!(folder.serve("serve --registration closed").before, [""; 0]);
}

/// The other build is tested in tests/otlp.
#[cfg(not(feature = "otlp"))]
#[test]
fn build_without_an_exporter_warns_of_a_collector() {
    let database = Database::temporary();
    let server = Server::start(database.serve_command("").env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"));
    let line = server.logged("cannot export traces");
    assert_eq!(line["why"], "this build has no exporter: build it with --features otlp");
}

#[test]
fn port_in_use_is_named_with_its_flag() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();

    for flag in ["--listen", "--messages-listen", "--ops-listen"] {
        let mut command = folder.command("serve");
        for other in ["--listen", "--messages-listen", "--ops-listen"] {
            command.args([other, if other == flag { &taken } else { "127.0.0.1:0" }]);
        }
        let ended = Process::start(&mut command).end();
        let wanted = format!("ERROR cannot listen on {taken} ({flag}): Address already in use (os error 98)\n");
        assert_eq!((ended.code, ended.log(), ended.stdout.as_str()), (Some(1), wanted, ""));
        assert_eq!(folder.names("."), [""; 0], "a start that fails creates nothing");
    }
    folder.write("none.toml", "listeners = []");
    folder.fails_to_serve("serve --config none.toml", "there is no listener to open: `listeners` is empty");
    assert_eq!(folder.names("."), ["none.toml"]);
}

#[test]
fn second_service_on_a_database_is_reported() {
    let folder = Folder::new();
    let first = folder.serve("quickstart");
    let warning = "another process has the database open".to_owned();
    assert!(!first.before.contains(&warning), "{:?}", first.before);
    assert!(folder.serve("quickstart").before.contains(&warning));
}

#[test]
fn limit_of_the_file_size_rejects_writes() {
    let (folder, key) = Folder::with_key();
    let mut command = folder.program("prlimit");
    command.args(["--fsize=200000", petstore()]).args(Database::SERVE.split_whitespace());
    let server = Server::start(&mut command);
    let rejected = (0..200).map(|_| server.send_message(&key, &"x".repeat(5_000))).find(|sent| sent.status() != 202);
    rejected.expect("the limit is reached").assert_unavailable();
    assert_eq!(server.get("/v1/pets", &key).status(), 200);
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[test]
fn data_directory_may_look_like_a_uri() {
    let folder = Folder::new();
    folder.succeed("account create ada@example.com --data-dir file:x");
    folder.succeed("backup --data-dir file:x file:there.db");
    folder.succeed("restore file:there.db --data-dir file:y?mode=memory");
    assert!(folder.succeed("account list --data-dir file:y?mode=memory").contains("ada@example.com"));
    assert_eq!(folder.names("."), ["file:there.db", "file:x", "file:y?mode=memory"]);
}

#[test]
fn linked_database_is_rejected() {
    let folder = Folder::with_account();
    folder.succeed("backup there.db");
    std::fs::create_dir(folder.path("linked")).unwrap();
    std::os::unix::fs::symlink("../petstore-data/petstore.db", folder.path("linked/petstore.db")).unwrap();
    for command in ["account list", "backup copy.db", "restore there.db --force", "migrate status"] {
        let why = "is a link: give the folder of its target with --data-dir, or move the database here";
        folder.fails(&format!("{command} --data-dir linked"), &format!("linked/petstore.db {why}"));
    }
}

#[test]
fn addresses_may_be_localhost() {
    let folder = Folder::new();
    let mut command =
        folder.command("serve --listen localhost:0 --messages-listen LOCALHOST:0 --listeners store,messages");
    let server = Server::start(&mut command);
    for listener in ["store", "messages"] {
        assert!(server.address(listener).to_string().starts_with("127.0.0.1:"), "{}", server.listening);
    }
    // Other machines may reach `0.0.0.0`, so production requires TLS there.
    let refused = Folder::new().run("serve --listen :0").log();
    let why = "ERROR the store listener is bound to 0.0.0.0:0, which other machines may reach";
    assert!(refused.starts_with(why), "{refused}");
}

#[test]
fn first_process_of_a_container_stops_while_it_opens_the_database() {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut container = folder.program("bwrap");
    container.args(["--dev-bind", "/", "/", "--unshare-pid", "--as-pid-1", "--die-with-parent", petstore(), "serve"]);
    container.arg(format!("--database-url=postgres://127.0.0.1:{}/shop", silent.local_addr().unwrap().port()));
    let mut process = Process::start(container.args(["--database-timeout=60s", "--listen=127.0.0.1:0"]));
    silent.set_nonblocking(true).unwrap();
    let _connection = eventually(TIMEOUT, "a connection", || silent.accept().ok());
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.pid())).unwrap();
    succeed(folder.program("kill").args(["-TERM", children.trim()]));
    assert_eq!(process.ended(TIMEOUT).code(), Some(0));
}
