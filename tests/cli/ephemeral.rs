//! `petstore ephemeral` without a command: the store of one test run, which leaves nothing behind.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use serde_json::Value;
use testkit::{ConsoleUser, Folder, Process, Random, Request, Response, Signal, TIMEOUT, new_message, soon, within};

/// A folder whose `tmp` is the temporary folder of its commands.
pub fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("tmp")).unwrap();
    folder
}

pub fn ephemeral(folder: &Folder, arguments: &str) -> Command {
    let mut command = folder.command(&format!("ephemeral {arguments}"));
    command.env("TMPDIR", folder.path("tmp"));
    command
}

/// A running store, and the line that it printed.
struct Running {
    process: Process,
    ready: Value,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        Self::of(Process::start(command))
    }

    fn of(process: Process) -> Self {
        let line = process.next_line().expect("it prints a line");
        Self { ready: serde_json::from_str(&line).unwrap(), process }
    }

    fn field(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap()
    }

    fn address(&self, name: &str) -> SocketAddr {
        let url = self.field(name).strip_prefix("http://").unwrap();
        url.trim_end_matches("/v1").trim_end_matches('/').parse().unwrap()
    }

    fn get(&self, path: &str, key: &str) -> Response {
        Request::new(self.address("storeUrl"), "GET", path).key(self.field(key)).send_blocking()
    }

    fn is_serving(&self) -> bool {
        self.get("/v1/pets", "key").status() == 200
    }

    fn animals(&self) -> usize {
        let list = self.get("/v1/pets?limit=100", "key");
        serde_json::from_str::<Vec<Value>>(&list.body).unwrap().len()
    }

    /// Asserts that it ends with status 0 and without a word, and leaves nothing.
    fn leaves_nothing(self, folder: &Folder) {
        let ended = self.process.end();
        assert_eq!(ended.shown(), "exit 0\n");
        assert_eq!(folder.names("tmp"), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_line_tells_how_to_use_the_store() {
    let folder = folder();
    let running = tokio::task::block_in_place(|| Running::start(&mut ephemeral(&folder, "")));

    let fields: Vec<_> = running.ready.as_object().unwrap().keys().map(String::as_str).collect();
    expect![[r#"storeUrl messagesUrl opsUrl consoleUrl key customerKey email customerEmail password pid"#]]
        .assert_eq(&fields.join(" "));
    assert_eq!(running.ready["pid"], running.process.pid());
    assert_eq!((running.field("email"), running.field("customerEmail")), ("staff@localhost", "customer@localhost"));
    for key in ["key", "customerKey"] {
        let list = tokio::task::block_in_place(|| running.get("/v1/pets?limit=100", key));
        assert_eq!((list.status(), list.body.matches("\"id\"").count()), (200, 30), "{}", list.body);
        let message = Request::new(running.address("messagesUrl"), "POST", "/v1/messages").key(running.field(key));
        assert_eq!(message.json(new_message("Hello")).send().await.status(), 202);
    }
    for email in ["email", "customerEmail"] {
        let mut user = ConsoleUser::new(running.address("consoleUrl"));
        soon(user.sign_in(running.field(email), running.field("password"))).await;
    }
    assert_eq!(Request::new(running.address("opsUrl"), "GET", "/readyz").send().await.status(), 200);
    let failing = Request::new(running.address("storeUrl"), "GET", "/v1/pets").key(running.field("key"));
    assert_eq!(failing.header("prefer", "code=503").send().await.status(), 503, "it simulates failures");
}

#[test]
fn folder_is_private_and_removed_at_every_signal() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::ALARM] {
        let folder = folder();
        let running = Running::start(&mut ephemeral(&folder, ""));
        let names = folder.names("tmp");
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(fs::metadata(folder.path("tmp").join(&names[0])).unwrap().permissions().mode() & 0o777, 0o700);

        running.process.signal(signal);

        running.leaves_nothing(&folder);
    }
}

#[test]
fn signal_during_the_start_leaves_nothing() {
    let mut random = Random::new(1);
    for attempt in 0..40 {
        let (folder, signal) = (folder(), if attempt % 2 == 0 { Signal::TERM } else { Signal::INT });
        let arguments = if attempt % 4 < 2 { "" } else { "-- sleep 60" };
        let process = Process::start(&mut ephemeral(&folder, arguments));
        thread::sleep(Duration::from_micros(random.below(120_000)));

        process.signal(signal);
        let ended = process.end();

        // `None` until signals are caught, which is before there is a folder.
        let stopped = if arguments.is_empty() { Some(0) } else { Some(128 + signal.as_raw()) };
        assert!(ended.code.is_none() || ended.code == stopped, "{ended:?}");
        assert_eq!(folder.names("tmp"), [""; 0], "{ended:?}");
    }
}

#[test]
fn import_of_the_first_animals_ends_at_a_signal() {
    let folder = folder();
    let animals = (0..400_000).map(|n| format!("{{\"name\":\"Rex\",\"categoryId\":{n}}}\n"));
    folder.write("animals.ndjson", animals.collect::<String>());
    let process = Process::start(&mut ephemeral(&folder, "--pets animals.ndjson"));
    within(TIMEOUT, "making the folder", || !folder.names("tmp").is_empty());

    process.signal(Signal::TERM);

    assert_eq!(process.end().shown(), "exit 143\nerror: interrupted: nothing was imported\n");
    assert_eq!(folder.names("tmp"), [""; 0]);
}

#[test]
fn hang_up_of_a_pipe_or_socket_ends_the_store() {
    let folder = folder();
    let mut process = Process::start(ephemeral(&folder, "").stdin(Stdio::piped()));
    let mut parent = process.take_input();
    let running = Running::of(process);
    parent.write_all(b"not read").unwrap();
    assert!(running.is_serving());
    drop(parent);
    running.leaves_nothing(&folder);

    let (parent, stdin) = UnixStream::pair().unwrap();
    let running = Running::start(ephemeral(&folder, "").stdin(OwnedFd::from(stdin)));
    assert!(running.is_serving());
    drop(parent);
    running.leaves_nothing(&folder);
}

#[test]
fn stdin_other_than_an_open_pipe_does_not_end_the_store() {
    let folder = folder();
    folder.write("empty", "");
    let (hung_up, writer) = std::io::pipe().unwrap();
    drop(writer);
    let file = File::open(folder.path("empty")).unwrap();
    for stdin in [Stdio::null(), Stdio::from(file), Stdio::from(hung_up)] {
        let running = Running::start(ephemeral(&folder, "").stdin(stdin));
        thread::sleep(Duration::from_millis(100));
        assert!(running.is_serving());
        running.process.signal(Signal::TERM);
        running.leaves_nothing(&folder);
    }
    let mut closed = folder.program("/bin/sh");
    closed.args(["-c", "exec \"$0\" ephemeral <&-", testkit::petstore()]).env("TMPDIR", folder.path("tmp"));
    let running = Running::start(&mut closed);
    assert!(running.is_serving());
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
}

#[test]
fn ready_line_is_a_single_write() {
    let folder = folder();
    let (reader, stdout) = UnixDatagram::pair().unwrap();
    reader.set_read_timeout(Some(TIMEOUT)).unwrap();
    let process = Process::start_with_stdout(&mut ephemeral(&folder, ""), Stdio::from(OwnedFd::from(stdout)));

    let mut datagram = [0; 4_096];
    let length = reader.recv(&mut datagram).unwrap();

    let line = std::str::from_utf8(&datagram[..length]).unwrap();
    assert!(line.ends_with("}\n"), "{line:?}");
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["pid"], process.pid());
    process.signal(Signal::TERM);
    assert_eq!(process.end().code, Some(0));
    reader.set_nonblocking(true).unwrap();
    assert!(reader.recv(&mut datagram).is_err(), "there is one datagram");
}

#[test]
fn store_that_cannot_tell_its_addresses_ends() {
    let folder = folder();
    let (reader, stdout) = std::io::pipe().unwrap();
    drop(reader);
    let process = Process::start_with_stdout(&mut ephemeral(&folder, ""), Stdio::from(stdout));
    assert_eq!(process.end().shown(), "exit 1\nerror: cannot print the addresses: Broken pipe (os error 32)\n");
    assert_eq!(folder.names("tmp"), [""; 0]);
}

#[test]
fn settings_elsewhere_are_ignored_and_flags_rejected() {
    let folder = folder();
    let mut command = ephemeral(&folder, "");
    command.envs([
        ("PETSTORE_DATABASE_URL", "postgres://shop:secret@127.0.0.1:1/shop"),
        ("PETSTORE_CONFIG", "/nonexistent.toml"),
        ("PETSTORE_LISTEN", "nonsense"),
        ("PETSTORE_MESSAGES_LISTEN", "0.0.0.0:1"),
        ("PETSTORE_DEPLOYMENT", "production"),
        ("PETSTORE_LOG_LEVEL", "trace"),
        ("PETSTORE_SIMULATION", "off"),
        ("PETSTORE_TYPO", "1"),
    ]);
    let running = Running::start(&mut command);
    assert!(running.is_serving() && running.field("key").starts_with("pet_test_"));
    assert_eq!(running.address("messagesUrl").ip().to_string(), "127.0.0.1");
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
    assert_eq!(folder.names("."), ["tmp"]);

    let rejected = folder.run("--config shop.toml ephemeral");
    assert_eq!(rejected.usage(), "exit 2\nerror: --config cannot be used with `petstore ephemeral`\n");
    assert_eq!(folder.run("ephemeral --data-dir here").code, Some(2));
}

#[test]
fn first_animals_are_those_of_a_file_or_none() {
    let folder = folder();
    folder.write("animals.ndjson", "{\"name\":\"Rex\",\"categoryId\":3}\n{\"name\":\"Mimi\",\"categoryId\":1}\n");
    for (arguments, count) in [("--empty", 0), ("--pets animals.ndjson", 2)] {
        assert_eq!(Running::start(&mut ephemeral(&folder, arguments)).animals(), count);
    }
    let before = folder.names("tmp");
    folder.write("wrong.ndjson", "{\"name\":\"Rex\"}\n{\"name\":\"Mimi\",\"categoryId\":1}\n");

    let rejected = Process::start(&mut ephemeral(&folder, "--pets wrong.ndjson -- touch started")).end();

    expect![[r#"
        exit 1
        warning: line 1: The field `categoryId` is required.
        error: nothing was imported: 1 invalid line; correct them
    "#]]
    .assert_eq(&rejected.shown());
    assert_eq!(folder.names("tmp"), before);
    assert!(!folder.path("started").exists());
    assert_eq!(folder.run("ephemeral --empty --pets animals.ndjson").code, Some(2));
}

#[test]
fn next_start_removes_only_abandoned_folders() {
    let folder = folder();
    let mut killed = Running::start(&mut ephemeral(&folder, ""));
    killed.process.kill();
    let abandoned = folder.names("tmp").remove(0);
    // Folders that must stay: a link to a marked one, one inside an abandoned one, one without a marker, and one in use.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    folder.write("elsewhere/petstore-ephemeral", "");
    symlink(folder.path("elsewhere"), folder.path("tmp/petstore-ephemeral-link")).unwrap();
    symlink(folder.path("elsewhere"), folder.path("tmp").join(&abandoned).join("data/link")).unwrap();
    fs::create_dir(folder.path("tmp/petstore-ephemeral-plain")).unwrap();
    folder.write("tmp/petstore-ephemeral-plain/file", "");
    let in_use = Running::start(&mut ephemeral(&folder, ""));
    let kept = folder.names("tmp");
    assert!(!kept.contains(&abandoned) && kept.len() == 3, "{kept:?}");

    assert_eq!(Process::start(&mut ephemeral(&folder, "-- true")).end().shown(), "exit 0\n");

    assert_eq!(folder.names("tmp"), kept);
    assert_eq!(folder.names("elsewhere"), ["petstore-ephemeral"]);
    assert_eq!(folder.names("tmp/petstore-ephemeral-plain"), ["file"]);
    assert!(in_use.is_serving());
}

#[test]
fn many_stores_run_side_by_side() {
    let folder = folder();
    let started: Vec<_> = (0..16).map(|_| Process::start(&mut ephemeral(&folder, ""))).collect();
    let running: Vec<_> = started.into_iter().map(Running::of).collect();
    for store in &running {
        assert_eq!(store.animals(), 30);
    }
    for store in &running {
        store.process.signal(Signal::TERM);
    }
    for store in running {
        assert_eq!(store.process.end().shown(), "exit 0\n");
    }
    assert_eq!(folder.names("tmp"), [""; 0]);
}
