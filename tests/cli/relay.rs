//! `--relay`: messages leave the queue, whatever is there at the moment and whatever is not.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::nats::{STREAM, Stored};
use testkit::postgres::{query, try_query};
use testkit::{Folder, NatsServer, PostgresServer, Request, Response, Server, Signal};

/// A database with a key, and how services are started on it.
struct Shop {
    folder: Folder,
    /// Nothing for the embedded database.
    url: Option<String>,
    key: String,
}

impl Shop {
    fn on_every_database() -> [Self; 2] {
        [None, Some(PostgresServer::shared().database())].map(|url| {
            let mut shop = Self { folder: Folder::new(), url, key: String::new() };
            shop.succeed("account create ada@example.com");
            shop.key = shop.succeed("key create --account ada@example.com --name test").trim_end().to_owned();
            shop
        })
    }

    fn on_sqlite() -> Self {
        let folder = Folder::with_account();
        Self { key: folder.key(), folder, url: None }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.folder.command(line);
        self.url.iter().for_each(|url| {
            command.env("PETSTORE_DATABASE_URL", url);
        });
        command
    }

    fn succeed(&self, line: &str) -> String {
        let ended = testkit::Process::start(&mut self.command(line)).end();
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    fn serve(&self, flags: &str) -> Server {
        let mut command = self.command(&format!("serve {flags}"));
        command.args(["--listen=127.0.0.1:0", "--messages-listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]);
        // What is said of the database's server before is not of interest here.
        Server::start(&mut command)
    }

    async fn send(&self, server: &Server, text: &str) -> Response {
        let body = serde_json::json!({ "message": text }).to_string();
        let sent = Request::new(server.address("messages"), "POST", "/v1/messages").key(&self.key).json(body);
        let answer = sent.send().await;
        assert_eq!(answer.status(), 202, "{}", answer.body);
        answer
    }

    fn list(&self, flags: &str) -> Vec<Value> {
        let listed: Value = serde_json::from_str(&self.succeed(&format!("messages list --json {flags}"))).unwrap();
        listed.as_array().unwrap().clone()
    }
}

/// Waits until the stream has so many messages, and a moment longer for those that would be too many.
async fn arrived(broker: &NatsServer, number: usize) -> Vec<Stored> {
    eventually(Duration::from_secs(30), || broker.stored(STREAM).len() >= number).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let stored = broker.stored(STREAM);
    assert_eq!(stored.len(), number, "each is there once");
    stored
}

async fn eventually(limit: Duration, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "it takes longer than {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn metric(server: &Server, name: &str) -> f64 {
    let scraped = Request::new(server.address("ops"), "GET", "/metrics").send().await.body;
    let line = scraped.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing:\n{scraped}")).parse().unwrap()
}

#[tokio::test]
async fn message_arrives_as_acknowledged() {
    for shop in Shop::on_every_database() {
        let broker = NatsServer::start();
        let server = shop.serve(&format!("--relay {}", broker.url()));

        let answers = [shop.send(&server, "Hello").await, shop.send(&server, "ß🦊\u{2028}\n\"\\").await];

        let stored = arrived(&broker, 2).await;
        for (answer, stored) in answers.iter().zip(&stored) {
            let id = answer.json()["id"].as_str().unwrap().to_owned();
            let expected =
                Stored { id, account: "1".into(), subject: "petstore.messages".into(), body: answer.body.clone() };
            assert_eq!(*stored, expected);
        }
        eventually(Duration::from_secs(5), || shop.list("--state waiting").is_empty()).await;
        assert_eq!(shop.list("--state sent").len(), 2);
        assert_eq!(metric(&server, "petstore_messages_relayed_total").await, 2.0);
        assert_eq!(metric(&server, "petstore_relay_active").await, 1.0);
        assert_eq!(metric(&server, "petstore_relay_failures_total").await, 0.0);
        assert!(metric(&server, "petstore_relay_last_acknowledgement_seconds").await > 1.7e9);
        assert_eq!(server.end_by(Signal::TERM).code, Some(0));
    }
}

#[tokio::test]
async fn relay_sends_messages_queued_before_it_started() {
    for shop in Shop::on_every_database() {
        let broker = NatsServer::start();
        let server = shop.serve("");
        let mut expected = Vec::new();
        for n in 0..300 {
            expected.push(shop.send(&server, &format!("message {n}")).await.body);
        }
        server.end_by(Signal::TERM);
        assert_eq!(shop.list("--state waiting --limit 1000").len(), 300);

        let server = shop.serve(&format!("--relay {}", broker.url()));

        let mut bodies: Vec<_> = arrived(&broker, 300).await.into_iter().map(|stored| stored.body).collect();
        bodies.sort();
        expected.sort();
        assert_eq!(bodies, expected);
        server.end_by(Signal::TERM);
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

#[tokio::test]
async fn documented_grants_suffice_to_serve_and_relay() {
    let owner = PostgresServer::shared().database();
    let mut shop = Shop { folder: Folder::new(), url: Some(owner.clone()), key: String::new() };
    shop.succeed("migrate");
    shop.url = Some(grant_to_serve(&owner));
    shop.succeed("account create ada@example.com");
    shop.key = shop.succeed("key create --account ada@example.com --name test").trim_end().to_owned();
    shop.folder.write("animals.ndjson", "{\"name\":\"Rex\",\"categoryId\":1}\n");
    shop.succeed("pets import animals.ndjson");
    let broker = NatsServer::start();

    let server = shop.serve(&format!("--relay {}", broker.url()));

    shop.send(&server, "Hello").await;
    arrived(&broker, 1).await;
    for (path, body) in [("/v1/pets", r#"{"name":"Mimi","categoryId":1}"#), ("/v1/store/orders", r#"{"petId":1}"#)] {
        let post = Request::new(server.address("store"), "POST", path).key(&shop.key).json(body.to_owned());
        let answer = post.header("Idempotency-Key", "once").send().await;
        assert!(matches!(answer.status(), 200 | 201), "{path}: {}", answer.body);
    }
    eventually(Duration::from_secs(5), || shop.list("--state waiting").is_empty()).await;
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    // Control: this role owns no tables.
    let refused = try_query(shop.url.as_ref().unwrap(), "CREATE INDEX ON messages (created_at)").unwrap_err();
    assert!(refused.contains("must be owner"), "{refused}");
}

#[tokio::test]
async fn second_process_takes_over_the_relay() {
    for shop in Shop::on_every_database() {
        let broker = NatsServer::start();
        let relay = format!("--relay {}", broker.url());
        let (one, other) = (shop.serve(&relay), shop.serve(&relay));
        for n in 0..50 {
            shop.send(&one, &format!("to one: {n}")).await;
            shop.send(&other, &format!("to the other: {n}")).await;
        }
        arrived(&broker, 100).await;
        let active = metric(&one, "petstore_relay_active").await;
        assert_eq!(active + metric(&other, "petstore_relay_active").await, 1.0);

        let (dies, lives) = if active == 1.0 { (one, other) } else { (other, one) };
        for n in 0..20 {
            shop.send(&lives, &format!("before: {n}")).await;
        }
        dies.end_by(Signal::KILL);
        for n in 0..20 {
            shop.send(&lives, &format!("after: {n}")).await;
        }

        // What was on its way when it died is sent again, and the stream knows it.
        arrived(&broker, 140).await;
        assert_eq!(metric(&lives, "petstore_relay_active").await, 1.0);
        lives.end_by(Signal::TERM);
    }
}

#[tokio::test]
async fn messages_wait_while_the_broker_is_down() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    let server = shop.serve(&format!("--relay {}", broker.url()));
    shop.send(&server, "before").await;
    arrived(&broker, 1).await;
    broker.kill();

    for n in 0..5 {
        shop.send(&server, &format!("meanwhile {n}")).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(Request::new(server.address("store"), "GET", "/readyz").send().await.status(), 200);
    assert_eq!(shop.list("--state waiting").len(), 5);
    let began = Instant::now();
    while metric(&server, "petstore_messages_waiting").await < 5.0 {
        assert!(began.elapsed() < Duration::from_secs(20), "they are counted every few seconds");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    broker.start_again();

    arrived(&broker, 6).await;
    assert!(metric(&server, "petstore_relay_failures_total").await >= 2.0);
    eventually(Duration::from_secs(5), || shop.list("--state waiting").is_empty()).await;
    let log = server.end_by(Signal::TERM).log();
    let said = |line: &str| log.lines().filter(|found| found.contains(line)).count();
    assert_eq!((said("cannot relay messages"), said("relaying messages again")), (1, 1), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn service_starts_without_a_broker() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    broker.kill();
    let server = shop.serve(&format!("--relay {}", broker.url()));
    shop.send(&server, "early").await;
    server.logged("cannot relay messages, they stay queued; retrying");

    broker.start_again();

    arrived(&broker, 1).await;
    server.end_by(Signal::TERM);
}

#[tokio::test]
async fn rejected_messages_do_not_delay_others() {
    let shop = Shop::on_sqlite();
    let folder = Folder::new();
    folder.write("nats.conf", "max_payload: 2048");
    let broker = NatsServer::start_with(&["--config", folder.path("nats.conf").to_str().unwrap()]);
    let server = shop.serve(&format!("--relay {}", broker.url()));
    // More than go to the broker at once, so that a whole batch of them is refused.
    for _ in 0..300 {
        shop.send(&server, &"x".repeat(3_000)).await;
    }

    shop.send(&server, "small").await;

    arrived(&broker, 1).await;
    let waiting = shop.list("--state waiting --limit 1000");
    assert_eq!(waiting.len(), 300);
    assert!(waiting.iter().all(|message| message["message"] != "small"));
    server.end_by(Signal::TERM);
}

#[tokio::test]
async fn relay_credentials_are_never_logged() {
    let shop = Shop::on_sqlite();
    let broker = NatsServer::start_with(&["--user", "ada", "--pass", "s3cr@t"]);
    let relay = format!("nats://ada:s3cr%40t@127.0.0.1:{}", broker.port());
    let mut command = shop.command("serve --log-level trace");
    command.args(["--listen=127.0.0.1:0", "--messages-listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]);
    command.env("PETSTORE_RELAY", &relay);
    let server = Server::start(&mut command);
    shop.send(&server, "Hello").await;
    let options = || async_nats::ConnectOptions::new().user_and_password("ada".into(), "s3cr@t".into());
    eventually(Duration::from_secs(20), || broker.stored_by(STREAM, options()).len() == 1).await;

    let log = server.end_by(Signal::TERM).stderr;

    assert!(log.contains("ada:[hidden]@127.0.0.1"), "{log}");
    assert!(!log.contains("s3cr"), "{log}");
    let mut shown = shop.command("config show");
    let shown = testkit::Process::start(shown.env("PETSTORE_RELAY", &relay)).end().stdout;
    assert!(shown.contains("relay = \"nats://ada:[hidden]@127.0.0.1"), "{shown}");
    let refused = shop.folder.run("serve --relay http://ada:s3cret@localhost");
    assert_eq!(refused.code, Some(2));
    assert!(!refused.stderr.contains("s3cret") && refused.stderr.contains("nats://"), "{}", refused.stderr);
}

#[tokio::test]
async fn sent_messages_are_deleted_after_their_retention() {
    let shop = Shop::on_sqlite();
    let mut broker = NatsServer::start();
    let server = shop.serve(&format!("--relay {} --relay-retention 1s", broker.url()));
    for n in 0..5 {
        shop.send(&server, &format!("message {n}")).await;
    }
    arrived(&broker, 5).await;
    broker.kill();
    shop.send(&server, "it waits").await;

    eventually(Duration::from_secs(30), || shop.list("").len() == 1).await;
    assert_eq!(shop.list("")[0]["message"], "it waits");
    server.end_by(Signal::TERM);
}
