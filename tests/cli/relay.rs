//! `--relay`: queued messages reach the broker, through failures of either side.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use testkit::nats::{STREAM, Stored};
use testkit::postgres::{query, try_query};
use testkit::{Database, Folder, NatsServer, PostgresServer, Request, Server, Shop, Signal, TIMEOUT, within};

/// Waits until the stream has `number` messages, and a moment longer for duplicates.
fn arrived(broker: &NatsServer, number: usize) -> Vec<Stored> {
    within(TIMEOUT, "relaying", || broker.stored(STREAM).len() >= number);
    std::thread::sleep(Duration::from_millis(200));
    let stored = broker.stored(STREAM);
    assert_eq!(stored.len(), number, "each message arrives once");
    stored
}

pub fn metric(server: &Server, name: &str) -> f64 {
    Request::new(server.address("ops"), "GET", "/metrics").send_blocking().metric(name)
}

#[test]
fn message_arrives_as_acknowledged() {
    for shop in Shop::on_every_database() {
        let broker = NatsServer::start();
        let server = shop.relay_to(&broker.url());

        let answers = [shop.send(&server, "Hello"), shop.send(&server, r#"ß🦊\u2028\n\"\\"#)];

        let stored = arrived(&broker, 2);
        for (answer, stored) in answers.iter().zip(&stored) {
            let id = answer.json()["id"].as_str().unwrap().to_owned();
            let expected =
                Stored { id, account: "1".into(), subject: "petstore.messages".into(), body: answer.body.clone() };
            assert_eq!(*stored, expected);
        }
        shop.assert_nothing_waits();
        assert_eq!(shop.messages("--state sent").len(), 2);
        assert_eq!(metric(&server, "petstore_messages_relayed_total"), 2.0);
        assert_eq!(metric(&server, "petstore_relay_active"), 1.0);
        assert_eq!(metric(&server, "petstore_relay_failures_total"), 0.0);
        assert!(metric(&server, "petstore_relay_last_acknowledgement_timestamp_seconds") > 1.7e9);
        assert_eq!(server.end_by(Signal::TERM).code, Some(0));
    }
}

/// Grants the documented rights to a role that serves, and no others. Returns the URL of that role.
fn grant_to_serve(url: &str) -> String {
    let (_, page) = include_str!("../../docs/scale-out.md").split_once("```sql\n").unwrap();
    let (grants, _) = page.split_once("```").unwrap();
    let (role, database) = ("petstore_serve", url.rsplit('/').next().unwrap());
    query(url, &format!("REVOKE ALL ON DATABASE {database} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC"));
    query(url, &grants.replace("DATABASE petstore", &format!("DATABASE {database}")));
    url.replacen("//petstore@", &format!("//{role}@"), 1)
}

#[test]
fn documented_grants_suffice_to_serve_and_relay() {
    let owner = PostgresServer::shared().database();
    assert!(Database::url(&owner).petstore("migrate").status().unwrap().success());
    let url = grant_to_serve(&owner);
    let shop = Shop::on(Database::url(&url));
    let mut import = shop.database.petstore("pets import -");
    let mut import = import.stdin(std::process::Stdio::piped()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(br#"{"name":"Rex","categoryId":1}"#).unwrap();
    assert!(import.wait().unwrap().success());
    let broker = NatsServer::start();

    let server = shop.relay_to(&broker.url());

    shop.send(&server, "Hello");
    arrived(&broker, 1);
    for (path, body) in [("/v1/pets", r#"{"name":"Mimi","categoryId":1}"#), ("/v1/store/orders", r#"{"petId":1}"#)] {
        let request = Request::new(server.store(), "POST", path).key(&shop.key).header("idempotency-key", "once");
        let answer = request.json(body).send_blocking();
        assert_eq!(answer.status(), 201, "{path}: {answer:?}");
    }
    shop.assert_nothing_waits();
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    // Control: this role owns no tables.
    let refused = try_query(&url, "CREATE INDEX ON messages (created_at)").unwrap_err();
    assert!(refused.contains("must be owner"), "{refused}");
}

#[test]
fn second_process_takes_over_the_relay() {
    for shop in Shop::on_every_database() {
        let broker = NatsServer::start();
        let (one, other) = (shop.relay_to(&broker.url()), shop.relay_to(&broker.url()));
        for n in 0..50 {
            shop.send(&one, &format!("to one: {n}"));
            shop.send(&other, &format!("to the other: {n}"));
        }
        arrived(&broker, 100);
        let active = metric(&one, "petstore_relay_active");
        assert_eq!(active + metric(&other, "petstore_relay_active"), 1.0);

        let (dies, lives) = if active == 1.0 { (one, other) } else { (other, one) };
        shop.send_numbered(&lives, "before", 20);
        dies.end_by(Signal::KILL);
        shop.send_numbered(&lives, "after", 20);

        // Messages in flight at the kill are sent again, and the stream drops the duplicates.
        arrived(&broker, 140);
        assert_eq!(metric(&lives, "petstore_relay_active"), 1.0);
        lives.end_by(Signal::TERM);
    }
}

#[test]
fn messages_wait_while_the_broker_is_down() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    let server = shop.relay_to(&broker.url());
    shop.send(&server, "before");
    arrived(&broker, 1);
    broker.kill();

    shop.send_numbered(&server, "meanwhile", 5);
    within(TIMEOUT, "trying again", || metric(&server, "petstore_relay_failures_total") >= 3.0);
    assert_eq!(server.get("/readyz", "").status(), 200);
    assert_eq!(shop.messages("--state waiting").len(), 5);
    within(TIMEOUT, "counting messages", || metric(&server, "petstore_messages_waiting") == 5.0);
    broker.start_again();

    arrived(&broker, 6);
    shop.assert_nothing_waits();
    let log = server.end_by(Signal::TERM).log();
    let said = |line: &str| log.lines().filter(|found| found.contains(line)).count();
    // Once for each cause: the lost connection, and the port that is closed.
    assert!((1..=2).contains(&said("cannot relay messages")) && said("relaying messages again") == 1, "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn service_starts_without_a_broker() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    broker.kill();
    let server = shop.relay_to(&broker.url());
    shop.send(&server, "early");
    server.logged("cannot relay messages, they stay queued; retrying");

    broker.start_again();

    arrived(&broker, 1);
    server.logged("relaying messages again");
    shop.database.sql("ALTER TABLE messages RENAME TO elsewhere");
    let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();
    assert!(why.contains("database: no such table"), "{why}");
    server.end_by(Signal::TERM);
}

#[test]
fn deleted_stream_is_created_again() {
    let shop = Shop::on_sqlite();
    let broker = NatsServer::start();
    let server = shop.relay_to(&broker.url());
    shop.send(&server, "before");
    arrived(&broker, 1);
    broker.delete(STREAM);

    shop.send(&server, "after");

    assert!(arrived(&broker, 1)[0].body.contains("after"));
}

#[test]
fn message_captured_by_another_stream_is_not_sent() {
    let shop = Shop::on_sqlite();
    let broker = NatsServer::start();
    broker.create(STREAM, &["elsewhere"]);
    broker.create("CAPTURE", &["petstore.>"]);
    let server = shop.relay_to(&broker.url());

    shop.send(&server, "before");

    // The stream lacks the subject when the relay connects.
    let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();
    assert!(why.contains("PETSTORE_MESSAGES") && why.contains("add petstore.messages to its subjects"), "{why}");
    broker.delete("CAPTURE");
    broker.create(STREAM, &["elsewhere", "petstore.*"]);
    arrived(&broker, 1);
    shop.assert_nothing_waits();

    // The stream loses the subject while the relay is connected.
    broker.create(STREAM, &["elsewhere"]);
    broker.create("CAPTURE", &["petstore.>"]);
    shop.send(&server, "after");
    let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();
    assert!(why.contains("another stream has the subject"), "{why}");
    assert_eq!(shop.messages("--state waiting").len(), 1);
    assert!(broker.stored("CAPTURE").is_empty());
    broker.delete("CAPTURE");
    broker.create(STREAM, &["petstore.messages"]);
    arrived(&broker, 2);
    server.end_by(Signal::TERM);
}

/// A broker that completes the handshake with each client and then calls `after`. Returns its URL and the times of the
/// connections.
fn misbehaving(after: impl Fn(TcpStream) + Send + 'static) -> (String, Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let (accepted, times) = channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.set_write_timeout(Some(TIMEOUT)).unwrap();
            client.write_all(b"INFO {\"max_payload\":1048576,\"headers\":true,\"version\":\"2.9.10\"}\r\n").unwrap();
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| line != "PING")) {}
            let _ = client.write_all(b"PONG\r\n");
            if accepted.send(Instant::now()).is_err() {
                return;
            }
            after(client);
        }
    });
    (url, times)
}

#[test]
fn broker_that_closes_every_connection_is_not_stormed() {
    let shop = Shop::on_sqlite();
    let (url, connected) = misbehaving(drop);
    let server = shop.relay_to(&url);

    let times: Vec<_> = (0..6).map(|_| connected.recv_timeout(TIMEOUT).unwrap()).collect();

    // Delays of 0.1, 0.2, 0.4, 0.8 and 1.6 s, each reduced by up to half.
    let took = times[5] - times[0];
    assert!(took >= Duration::from_millis(1_500), "{took:?}");
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[test]
fn broker_that_closes_connections_later_is_not_stormed() {
    let shop = Shop::on_sqlite();
    let (url, connected) = misbehaving(|mut client| {
        let mut request = String::new();
        BufReader::new(client.try_clone().unwrap()).read_line(&mut request).unwrap();
        let inbox = request.split(' ').nth(2).unwrap();
        let info = r#"{"config":{"subjects":["petstore.messages"]}}"#;
        client.write_all(format!("MSG {inbox} 1 {}\r\n{info}\r\n", info.len()).as_bytes()).unwrap();
    });
    let server = shop.relay_to(&url);

    let times: Vec<_> = (0..5).map(|_| connected.recv_timeout(TIMEOUT).unwrap()).collect();

    // A second until each loss is noticed, and delays of 0.1, 0.2, 0.4 and 0.8 s, each reduced by up to half.
    let took = times[4] - times[0];
    assert!(took >= Duration::from_millis(4_700), "{took:?}");
    let log = server.end_by(Signal::TERM).stderr;
    assert_eq!(log.matches("closed the connection").count(), 1, "{log}");
}

#[test]
fn what_a_broker_sends_is_bounded() {
    /// More than the buffers of the sockets hold.
    const FLOOD: usize = 64 * 1024 * 1024;
    for begin in ["", "+", "MSG a 1 2147483647\r\n", "HMSG a 1 99 2147483647\r\n", "MSG a 1 18446744073709551615\r\n"] {
        let shop = Shop::on_sqlite();
        let (told, taken) = channel();
        let (url, _connected) = misbehaving(move |mut client| {
            let part = [b'x'; 64 * 1024];
            let mut sent = 0;
            let _ = client.write_all(begin.as_bytes());
            while sent < FLOOD && client.write_all(&part).is_ok() {
                sent += part.len();
            }
            let _ = told.send(sent);
        });
        let server = shop.relay_to(&url);

        let taken = taken.recv_timeout(TIMEOUT).unwrap();

        assert!(taken < FLOOD, "{begin:?}: the relay took it all");
        let ended = server.end_by(Signal::TERM);
        assert!(ended.code == Some(0) && !ended.stderr.contains("panicked"), "{begin:?}: {ended:?}");
    }
}

#[test]
fn rejected_messages_do_not_delay_others() {
    let shop = Shop::on_sqlite();
    let folder = Folder::new();
    folder.write("nats.conf", "max_payload: 2048");
    let broker = NatsServer::start_with(&["--config", folder.path("nats.conf").to_str().unwrap()]);
    let server = shop.database.serve_with(&format!("--relay {} --log-level debug", broker.url()));
    // More messages than a batch has, so that the broker rejects a whole batch.
    for _ in 0..300 {
        shop.send(&server, &"x".repeat(3_000));
    }

    shop.send(&server, "small");

    arrived(&broker, 1);
    let waiting = shop.messages("--state waiting --limit 1000");
    assert_eq!(waiting.len(), 300);
    assert!(waiting.iter().all(|message| message["message"] != "small"));
    // Longer than two rounds through all messages.
    thread::sleep(Duration::from_secs(3));
    let log = server.end_by(Signal::TERM).stderr;
    assert_eq!(log.matches("relaying messages").count(), 1, "{log}");
    assert_eq!(log.matches("stream opened").count(), 1, "rejections do not end the connection: {log}");
}

#[test]
fn message_of_any_size_around_max_payload_does_not_delay_others() {
    let shop = Shop::on_sqlite();
    let folder = Folder::new();
    folder.write("nats.conf", "max_payload: 2048");
    let broker = NatsServer::start_with(&["--config", folder.path("nats.conf").to_str().unwrap()]);
    let server = shop.relay_to(&broker.url());
    for size in 1_700..1_900 {
        shop.send(&server, &"x".repeat(size));
    }
    shop.send(&server, "small");

    within(TIMEOUT, "relaying", || broker.stored(STREAM).iter().any(|message| message.body.contains("small")));

    let waiting = shop.messages("--state waiting --limit 1000").len();
    assert!((1..200).contains(&waiting), "{waiting}");
    let log = server.end_by(Signal::TERM).stderr;
    assert!(log.contains("max_payload") && !log.contains("connection lost"), "{log}");
}

#[test]
fn relay_credentials_are_never_logged() {
    let shop = Shop::on_sqlite();
    let broker = NatsServer::start_with(&["--user", "ada", "--pass", "s3cr@t"]);
    let relay = format!("nats://ada:s3cr%40t@127.0.0.1:{}", broker.port());
    let mut command = shop.database.petstore(&format!("{} --log-level trace", Database::SERVE));
    let server = Server::start(command.env("PETSTORE_RELAY", &relay));
    shop.send(&server, "Hello");
    let options = || testkit::nats::ConnectOptions::new().user_and_password("ada".into(), "s3cr@t".into());
    within(TIMEOUT, "relaying", || broker.stored_by(STREAM, options()).len() == 1);

    let log = server.end_by(Signal::TERM).stderr;

    assert!(log.contains("ada:[hidden]@127.0.0.1"), "{log}");
    assert!(!log.contains("s3cr"), "{log}");
    let folder = Folder::new();
    let mut shown = folder.command("config show");
    let shown = testkit::Process::start(shown.env("PETSTORE_RELAY", &relay)).end().stdout;
    assert!(shown.contains("relay = \"nats://ada:[hidden]@127.0.0.1"), "{shown}");
    let rejected = folder.run("serve --relay http://ada:s3cret@localhost").usage();
    assert!(!rejected.contains("s3cret") && rejected.contains("nats://"), "{rejected}");
}

#[test]
fn sent_messages_are_deleted_after_their_retention() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    let server = shop.database.serve_with(&format!("--relay {} --relay-retention 1s", broker.url()));
    shop.send_numbered(&server, "message", 5);
    arrived(&broker, 5);
    broker.kill();
    shop.send(&server, "it waits");

    within(TIMEOUT, "deleting sent messages", || shop.messages("").len() == 1);
    assert_eq!(shop.messages("")[0]["message"], "it waits");
    server.end_by(Signal::TERM);
}
