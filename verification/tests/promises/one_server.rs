//! Promise 49: all connections of a process lead to one PostgreSQL server.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{query, sessions};
use testkit::{Database, PostgresServer, Server, eventually, trial, within};

use verification::Network;

/// Maximum time until the process uses its server again.
const RETURN: Duration = Duration::from_secs(10);

/// A balancer without health checks, and a standby that was promoted although the primary is alive.
#[test]
fn process_stays_on_one_of_two_servers_behind_a_balancer() {
    let first = PostgresServer::start();
    let url = first.database();
    let name = url.rsplit('/').next().unwrap();
    let key = Database::url(&url).make_key();
    let second = first.standby();
    second.control(&["promote"]);
    let urls = [&first, &second].map(|server| server.url(name));
    let balancer = Network::among(vec![first.port(), second.port()]);
    let mut clients = Clients::new(Database::url(balancer.url(&url)).serve(), key);
    let used = urls.iter().find(|url| sessions(url, PETSTORE) > 0).unwrap();
    let other = urls.iter().find(|url| *url != used).unwrap();
    let rounds = trial::rounds(3);
    for _ in trial::counted(rounds) {
        (0..20).for_each(|_| clients.create_and_read());
        query(used, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {PETSTORE}"));
        clients.wait();
    }
    assert_eq!(query(other, "SELECT count(*) FROM pets"), "0", "animals on the second server");
    assert_eq!(clients.missing(used), 0);
    // Control: a client without this check reaches both servers.
    let mut reached = HashSet::new();
    within(RETURN, "reaching both servers", || {
        reached.insert(query(&balancer.url(&url), "SELECT pg_postmaster_start_time()"));
        reached.len() == 2
    });
    assert!(clients.service.before.iter().any(|message| message == REFUSAL), "{:?}", clients.service.before);
    trial::measured(&format!(
        "{rounds} losses of all connections, 0 of {} responses of the second server",
        clients.responses
    ));
}

#[test]
fn stale_primary_is_refused() {
    let stale = PostgresServer::start();
    let url = stale.database();
    let key = Database::url(&url).make_key();
    let used = stale.standby();
    used.control(&["promote"]);
    refuse("stale primary", &url, &key, &used, &stale);
}

#[test]
fn another_database_is_refused() {
    let (used, other) = (PostgresServer::start(), PostgresServer::start());
    let url = used.database();
    let key = Database::url(&url).make_key();
    assert_eq!(url.rsplit('/').next(), other.database().rsplit('/').next());
    // It has tables, but not the same ones.
    Database::url(other.url(url.rsplit('/').next().unwrap())).make_key();
    let list = Database::url(both(&url, used.port(), other.port()));
    assert!(Server::try_start(list.serve_command("")).is_none(), "the right one of two databases is unknown");
    other.control(&["stop"]);
    refuse("another database", &url, &key, &used, &other);
}

/// The second server answers after the one in use, whose answer suffices for a connection.
#[test]
fn standby_promoted_beside_its_primary_is_reported() {
    let used = PostgresServer::start();
    let url = used.database();
    Database::url(&url).make_key();
    let other = used.standby();
    let service = Database::url(both(&url, used.port(), Network::to(other.port()).port())).serve();
    other.control(&["promote"]);
    let one = format!("SELECT pid FROM pg_stat_activity WHERE {PETSTORE} LIMIT 1");
    query(&url, &format!("SELECT pg_terminate_backend(pid) FROM ({one}) AS one"));
    assert_eq!(service.logged(REFUSAL)["level"], "ERROR");
}

/// Stops the server that a process uses, and starts it again. Meanwhile the process must not use `other`.
fn refuse(what: &str, url: &str, key: &str, used: &PostgresServer, other: &PostgresServer) {
    let name = url.rsplit('/').next().unwrap();
    let list = both(url, used.port(), other.port());
    let mut clients = Clients::new(Database::url(&list).serve(), key.to_owned());
    other.control(&["restart"]);
    let rounds = trial::rounds(2);
    for _ in trial::counted(rounds) {
        (0..20).for_each(|_| clients.create_and_read());
        used.control(&["stop", "-m", "immediate"]);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            clients.service.get("/v1/pets", &clients.key).assert_unavailable();
            clients.service.create_pet(&clients.key, "refused").assert_unavailable();
            clients.responses += 2;
            thread::sleep(Duration::from_millis(10));
        }
        // Control: a client without this check is served by the other server.
        assert_eq!(query(&list, "SELECT count(*) FROM pets"), "0");
        used.control(&["start"]);
        clients.wait();
    }
    assert_eq!(clients.missing(&used.url(name)), 0);
    let refusal = clients.service.logged(REFUSAL);
    assert_eq!(refusal["level"], "ERROR");
    let address = format!("127.0.0.1:{} (database ", other.port());
    assert!(refusal["refused"].as_str().unwrap().starts_with(&address), "{refusal}");
    trial::measured(&format!("{what}: {rounds} outages, 0 of {} responses of the second server", clients.responses));
}

/// The URL of a database with the ports of two servers.
pub fn both(url: &str, used: u16, other: u16) -> String {
    let name = url.rsplit('/').next().unwrap();
    // The wrong server comes first.
    format!("postgres://petstore@127.0.0.1:{other},127.0.0.1:{used}/{name}?target_session_attrs=read-write")
}

const PETSTORE: &str = "application_name = 'petstore'";
const REFUSAL: &str = "refusing a second PostgreSQL server that accepts writes";

struct Clients {
    service: Server,
    key: String,
    acknowledged: Vec<i64>,
    responses: usize,
}

impl Clients {
    const fn new(service: Server, key: String) -> Self {
        Self { service, key, acknowledged: Vec::new(), responses: 0 }
    }

    /// Creates an animal, and reads one by id and the last ones by a list: over several connections.
    fn create_and_read(&mut self) {
        let created = self.service.create_pet(&self.key, "Rex");
        assert_eq!(created.status(), 201);
        self.acknowledged.push(created.id());
        for _ in 0..4 {
            let path = format!("/v1/pets/{}", created.id());
            assert_eq!(self.service.get(&path, &self.key).status(), 200, "an acknowledged animal is missing");
        }
        self.responses += 5;
    }

    /// Waits until the service answers again.
    fn wait(&mut self) {
        self.acknowledged.push(eventually(RETURN, "writing again", || {
            let created = self.service.create_pet(&self.key, "Rex");
            let answers = created.status() == 201 && self.service.get("/v1/pets", &self.key).status() == 200;
            answers.then(|| created.id())
        }));
    }

    /// The number of acknowledged animals that are missing from a database.
    fn missing(&self, url: &str) -> usize {
        let stored = query(url, "SELECT id FROM pets");
        let stored: Vec<i64> = stored.lines().map(|id| id.parse().unwrap()).collect();
        self.acknowledged.iter().filter(|id| !stored.contains(id)).count()
    }
}
