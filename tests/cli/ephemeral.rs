//! `petstore ephemeral` without a command: the store of one test run, which leaves nothing behind.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::thread;

use expect_test::expect;
use serde_json::Value;
use testkit::{
    ConsoleUser, Folder, Process, Request, Response, Signal, TIMEOUT, fields, new_message, new_pet, petstore, soon,
    within,
};

/// A folder whose `tmp` is the temporary folder of its commands.
pub fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("tmp")).unwrap();
    folder
}

pub fn ephemeral(folder: &Folder, arguments: &str) -> Command {
    let mut command = folder.program("env");
    // `nohup` or `&` may have started the tests, and a signal that is ignored stays ignored.
    command.args(["--default-signal", petstore(), "ephemeral"]).args(arguments.split_whitespace());
    command.env("TMPDIR", folder.path("tmp"));
    command
}

/// A running store, and the line that it printed.
pub struct Running {
    pub process: Process,
    ready: Value,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self::of(Process::start(command))
    }

    pub fn of(process: Process) -> Self {
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

    pub fn is_serving(&self) -> bool {
        self.get("/v1/pets", "key").status() == 200
    }

    fn animals(&self) -> usize {
        let list = self.get("/v1/pets?limit=100", "key");
        serde_json::from_str::<Vec<Value>>(&list.body).unwrap().len()
    }

    /// Asserts that it ends with status 0 and without a word, and leaves nothing.
    pub fn leaves_nothing(self, folder: &Folder) {
        let ended = self.process.end();
        assert_eq!(ended.shown(), "exit 0\n");
        assert_eq!(folder.names("tmp"), [""; 0]);
    }
}

#[test]
fn delayed_response_does_not_delay_the_end() {
    let folder = folder();
    let running = Running::start(&mut ephemeral(&folder, ""));
    let before = running.animals();
    let create = Request::new(running.address("storeUrl"), "POST", "/v1/pets").key(running.field("key"));
    let create = create.header("prefer", "delay=25000").json(new_pet("Rex"));
    let response = thread::spawn(move || create.try_send_blocking());
    within(TIMEOUT, "the animal", || running.animals() > before);
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
    assert!(response.join().unwrap().is_err(), "it is given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_line_tells_how_to_use_the_store() {
    let folder = folder();
    let running = tokio::task::block_in_place(|| Running::start(&mut ephemeral(&folder, "")));

    expect![[
        r#"storeUrl messagesUrl opsUrl consoleUrl key customerKey keys email customerEmail password dataDir pid"#
    ]]
    .assert_eq(&fields(&running.ready).join(" "));
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
    testkit::until(async || Request::new(running.address("opsUrl"), "GET", "/readyz").send().await.status() == 200)
        .await;
    let failing = Request::new(running.address("storeUrl"), "GET", "/v1/pets").key(running.field("key"));
    assert_eq!(failing.header("prefer", "code=503").send().await.status(), 503, "it simulates failures");
}

#[test]
fn ready_line_is_a_single_write() {
    let folder = folder();
    let (reader, stdout) = UnixDatagram::pair().unwrap();
    reader.set_read_timeout(Some(TIMEOUT)).unwrap();
    let process = Process::start_with_stdout(ephemeral(&folder, "").env("TMPDIR", ""), OwnedFd::from(stdout).into());

    let mut datagram = [0; 4_096];
    let length = reader.recv(&mut datagram).unwrap();

    let line = std::str::from_utf8(&datagram[..length]).unwrap();
    assert!(line.ends_with("}\n"), "{line:?}");
    let ready: Value = serde_json::from_str(line).unwrap();
    assert_eq!(ready["pid"], process.pid());
    assert!(ready["dataDir"].as_str().unwrap().starts_with("/tmp/"), "an empty TMPDIR is none: {line}");
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
    let elsewhere = tempfile::tempdir().unwrap();
    let supervisor = UnixDatagram::bind(elsewhere.path().join("notify")).unwrap();
    supervisor.set_nonblocking(true).unwrap();
    command.env("NOTIFY_SOCKET", elsewhere.path().join("notify"));
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.local_addr().unwrap()));
    let running = Running::start(&mut command);
    assert!(running.is_serving() && running.field("key").starts_with("pet_test_"));
    assert_eq!(running.address("messagesUrl").ip().to_string(), "127.0.0.1");
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
    assert_eq!(folder.names("."), ["tmp"]);
    assert!(supervisor.recv(&mut [0; 16]).is_err(), "a supervisor is not notified");
    assert!(collector.accept().is_err(), "no trace is sent");
    let verbose = Process::start(&mut ephemeral(&folder, "--log-level info -- true")).end();
    assert!(verbose.code == Some(0) && verbose.stderr.starts_with("listening "), "{verbose:?}");

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
    let mut process = Process::start(ephemeral(&folder, "--pets -").stdin(Stdio::piped()));
    process.take_input().write_all(b"{\"name\":\"Rex\",\"categoryId\":3}\n").unwrap();
    assert_eq!(Running::of(process).animals(), 1, "the end of the animals does not stop the store");
    let before = folder.names("tmp");
    folder.write("wrong.ndjson", "{\"name\":\"Rex\"}\n{\"name\":\"Mimi\",\"categoryId\":1}\n");

    let rejected = Process::start(&mut ephemeral(&folder, "--pets wrong.ndjson -- touch started")).end();

    expect![[r#"
        exit 1
        warning: line 1: The field `categoryId` is required.
        warning: each line must be one JSON object: see `petstore pets import --help`
        error: nothing was imported: 1 invalid line; correct them
    "#]]
    .assert_eq(&rejected.shown());
    assert_eq!(folder.names("tmp"), before);
    assert!(!folder.path("started").exists());
    assert_eq!(folder.run("ephemeral --empty --pets animals.ndjson").code, Some(2));
    folder.fails("ephemeral --pets - -- touch started", "- has no animals (--pets): to have none, use --empty");
}

#[test]
fn commands_work_on_the_folder_of_the_store() {
    let folder = folder();
    let running = Running::start(&mut ephemeral(&folder, ""));
    let on_it = |arguments: &str| folder.run(&format!("{arguments} --data-dir {}", running.field("dataDir")));

    let created = on_it("key create --account customer@localhost --name failing --prefer code=503");
    let failing = Request::new(running.address("storeUrl"), "GET", "/v1/pets").key(created.stdout.trim());
    assert_eq!(failing.send_blocking().status(), 503);
    assert_eq!(on_it("reset --empty --yes").code, Some(0));
    assert_eq!(running.animals(), 0);
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
}

#[test]
fn keys_addresses_and_failures_can_be_chosen() {
    let folder = folder();
    let [key, customer_key] = [(); 2].map(|()| folder.run("key new").stdout.trim().to_owned());
    let chosen = format!(
        "--key {key} --customer-key {customer_key} --base-url http://petstore:8080/v1 --messages-base-url http://b/v1 \
         --ops-listen [::1]:0 --rate-limit 100/s --prefer flaky=code=503 --prefer slow=delay=1"
    );
    let running = Running::start(&mut ephemeral(&folder, &chosen));

    assert_eq!((running.field("key"), running.field("customerKey")), (&*key, &*customer_key));
    assert_eq!(running.field("storeUrl"), "http://petstore:8080/v1");
    assert_eq!(running.field("messagesUrl"), "http://b/v1");
    assert_eq!(fields(&running.ready["keys"]), ["flaky", "slow"]);
    assert!(running.address("opsUrl").is_ipv6());
    let addresses = Process::start(&mut ephemeral(
        &folder,
        &format!("--key {key} --listen 0.0.0.0:0 --log-level error -- sh -c env"),
    ))
    .end();
    assert!(addresses.stdout.contains(&format!("STORE_API_KEY={key}\n")), "{addresses:?}");

    for (arguments, why) in [
        (
            "--key pet_test_short",
            "the API key is not a key of a staging store with a right checksum: see `petstore key new`",
        ),
        ("--prefer flaky", "invalid value 'flaky' for '--prefer <NAME=PREFERENCES>': has no effect"),
        ("--prefer fla-ky=code=503", "it must be NAME=PREFERENCES, and NAME letters, digits and underscores"),
        ("--prefer a=code=503 --prefer b=delay=1 --prefer a=code=500", "--prefer has two keys for STORE_API_KEY_A\n"),
        ("--prefer a=code=503 --prefer A=code=500", "--prefer has two keys for STORE_API_KEY_A\n"),
        (&format!("--key {key} --customer-key {key}"), "--key and --customer-key are the same key\n"),
    ] {
        let rejected = Process::start(&mut ephemeral(&folder, arguments)).end();
        assert!(rejected.code == Some(2) && rejected.stderr.contains(why), "{rejected:?}");
    }
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
