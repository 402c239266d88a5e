//! Promise 15: without its PostgreSQL server, the service responds 503 in time, and it recovers without a restart.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{free_port, query, try_query};
use testkit::{Database, PostgresServer, Response, Server, Shop, Signal, trial, within};

use verification::Network;

#[test]
fn stopped_database_is_503_until_it_returns() {
    let server = PostgresServer::start();
    let url = server.database();
    let Shop { database, key } = Shop::on(Database::url(&url));
    let service = database.serve();
    let mut outages = Outages::new(&service, &key);
    for round in trial::counted(trial::rounds(2)) {
        // `fast` tells the clients, `immediate` does not.
        let mode = if round % 2 == 0 { "immediate" } else { "fast" };
        outages.cause(|| server.control(&["stop", "-m", mode]), || server.control(&["start"]));
    }
    outages.check("stops of the server", &url);
    let log = service.end_by(Signal::TERM).log();
    assert!(log.contains("PostgreSQL connection restored") && !log.contains("not renewed"), "{log}");
}

#[test]
fn silent_network_is_503_until_it_returns() {
    let network = Network::to(PostgresServer::shared().port());
    let direct = PostgresServer::shared().database();
    let url = network.url(&direct);
    let key = Database::url(&direct).make_key();
    let service = Database::url(&url).with_default_timeout().serve();
    let mut outages = Outages::new(&service, &key);
    for _ in trial::counted(trial::rounds(2)) {
        outages.cause(|| network.silence(true), || network.silence(false));
    }
    // Control: a client without deadlines waits until the network returns.
    network.silence(true);
    let waiting = thread::spawn(move || try_query(&url, "SELECT 1"));
    thread::sleep(Duration::from_secs(3));
    assert!(!waiting.is_finished(), "{:?}", waiting.join());
    network.silence(false);
    waiting.join().unwrap().unwrap();
    outages.check("silences of the network", &direct);
}

#[test]
fn service_does_not_start_without_a_database() {
    let free = free_port();
    let began = Instant::now();
    let stderr = Database::url(format!("postgres://ada:s3cret@127.0.0.1:{free}/shop")).rejects(Database::SERVE);
    trial::judge("the refusal to start", began.elapsed(), Duration::from_secs(15));
    let message = format!("cannot open the database postgres://ada:[hidden]@127.0.0.1:{free}/shop");
    assert!(stderr.contains(&message) && stderr.contains("refused") && !stderr.contains("s3cret"), "{stderr}");
}

/// Outages of the database, and the acknowledged writes before them.
struct Outages<'a> {
    service: &'a Server,
    key: &'a str,
    acknowledged: Vec<String>,
    slowest_rejection: Duration,
    slowest_return: Duration,
}

impl<'a> Outages<'a> {
    const fn new(service: &'a Server, key: &'a str) -> Self {
        let zero = Duration::ZERO;
        Self { service, key, acknowledged: Vec::new(), slowest_rejection: zero, slowest_return: zero }
    }

    fn cause(&mut self, begin: impl FnOnce(), end: impl FnOnce()) {
        let (service, key) = (self.service, self.key);
        // Control: nothing is rejected while the database is available.
        let name = format!("before-{}", self.acknowledged.len());
        assert_eq!(service.pet_request(key, &name).send_until_available().status(), 201);
        self.acknowledged.push(name);
        begin();
        for _ in 0..2 {
            // At once, because each may wait until its deadline.
            let requests: [&(dyn Fn() -> Response + Sync); 5] = [
                &|| service.get("/v1/pets", key),
                &|| service.get("/v1/pets/1", key),
                &|| service.create_pet(key, "meanwhile"),
                &|| service.send_message(key, "meanwhile"),
                &|| service.get("/readyz", key),
            ];
            let responses = thread::scope(|scope| {
                let sent = requests.map(|request| scope.spawn(request));
                sent.map(|response| response.join().unwrap())
            });
            for response in responses {
                response.assert_unavailable();
                self.slowest_rejection = self.slowest_rejection.max(response.took);
            }
            assert_eq!(service.get("/livez", key).status(), 200);
        }
        end();
        let took = within(Duration::from_secs(5), "recovery", || {
            service.create_pet(key, "after").status() == 201
                && service.get("/v1/pets", key).status() == 200
                && service.get("/readyz", key).status() == 200
        });
        self.slowest_return = self.slowest_return.max(took);
    }

    /// Asserts that no acknowledged write is lost, and reports the outages.
    fn check(self, kind: &str, url: &str) {
        let stored = query(url, "SELECT name FROM pets");
        let stored: HashSet<_> = stored.lines().collect();
        let lost: Vec<_> = self.acknowledged.iter().filter(|name| !stored.contains(name.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        trial::measured(&format!(
            "{} {kind}: 503 within {} ms, back within {} ms",
            self.acknowledged.len(),
            self.slowest_rejection.as_millis() + 1,
            self.slowest_return.as_millis() + 1
        ));
    }
}
