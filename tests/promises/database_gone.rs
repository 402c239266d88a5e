//! Promise 15: without its database the service refuses in time, and comes back by itself.

use std::time::{Duration, Instant};
use testkit::blocking::Response;
use testkit::postgres::try_query;
use testkit::{Database, PostgresServer, Server, trial, within};

use crate::network::Network;

#[test]
fn stopped_database_is_503_until_it_returns() {
    let server = PostgresServer::start();
    let url = server.database();
    let database = Database::url(&url);
    let key = database.make_key();
    let service = database.serve();
    let mut cycles = Cycles::new(&service, &key);
    for round in 1..=trial::rounds(2) {
        // With and without a word to its clients.
        let how = if round % 2 == 0 { "immediate" } else { "fast" };
        cycles.run(|| server.control(&["stop", "-m", how]), || server.control(&["start"]));
    }
    let kept = server.sql(url.rsplit('/').next().unwrap(), "SELECT name FROM pets");
    cycles.end("stops of the server", &kept);
}

#[test]
fn silent_network_is_503_until_it_returns() {
    let server = PostgresServer::shared();
    let network = Network::to(server.port());
    let direct = server.database();
    let url = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", network.port));
    let database = Database::url(&url);
    let key = database.make_key();
    let service = database.serve();
    let mut cycles = Cycles::new(&service, &key);
    for _ in 1..=trial::rounds(2) {
        cycles.run(|| network.silence(true), || network.silence(false));
    }
    // The control: with nobody to cut it short, a client of that network waits for as long as it is silent.
    network.silence(true);
    let began = Instant::now();
    let waiting = std::thread::spawn(move || try_query(&url, "SELECT 1"));
    std::thread::sleep(Duration::from_secs(3));
    assert!(!waiting.is_finished(), "{:?} after {:?}", waiting.join(), began.elapsed());
    network.silence(false);
    waiting.join().unwrap().unwrap();
    let kept = server.sql(direct.rsplit('/').next().unwrap(), "SELECT name FROM pets");
    cycles.end("silences of the network", &kept);
}

#[test]
fn service_does_not_start_without_a_database() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = Database::url(format!("postgres://ada:s3cret@127.0.0.1:{free}/shop"));
    let began = std::time::Instant::now();
    let ended = database.petstore("serve").output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(
        told.contains(&format!("cannot open the database postgres://ada:[hidden]@127.0.0.1:{free}/shop")),
        "{told}"
    );
    assert!(told.contains("refused") && !told.contains("s3cret"), "{told}");
}

/// What was seen in all cycles so far.
struct Cycles<'a> {
    service: &'a Server,
    key: &'a str,
    acknowledged: Vec<String>,
    slowest_refusal: Duration,
    slowest_return: Duration,
}

impl<'a> Cycles<'a> {
    const fn new(service: &'a Server, key: &'a str) -> Self {
        Self { service, key, acknowledged: Vec::new(), slowest_refusal: Duration::ZERO, slowest_return: Duration::ZERO }
    }

    fn run(&mut self, take_away: impl FnOnce(), bring_back: impl FnOnce()) {
        // The control of what follows: as long as the database is there, nothing is refused.
        let name = format!("before-{}", self.acknowledged.len());
        assert_eq!(self.service.create_pet(self.key, &name).status, 201);
        assert_eq!(self.service.get("/v1/pets", self.key).status, 200);
        self.acknowledged.push(name);
        take_away();
        for _ in 0..2 {
            self.refused(&self.service.get("/v1/pets", self.key));
            self.refused(&self.service.get("/v1/pets/1", self.key));
            self.refused(&self.service.create_pet(self.key, "meanwhile"));
            self.refused(&self.service.send_message(self.key, "meanwhile"));
            self.refused(&self.service.get("/readyz", self.key));
            assert_eq!(self.service.get("/livez", self.key).status, 200);
        }
        bring_back();
        let took = within(Duration::from_secs(5), "coming back", || {
            self.service.create_pet(self.key, "after").status == 201
                && self.service.get("/v1/pets", self.key).status == 200
                && self.service.get("/readyz", self.key).status == 200
        });
        self.slowest_return = self.slowest_return.max(took);
        if self.acknowledged.len().is_multiple_of(10) {
            println!("cycle {}: back after {took:?}", self.acknowledged.len());
        }
    }

    fn refused(&mut self, answer: &Response) {
        answer.assert_unavailable();
        self.slowest_refusal = self.slowest_refusal.max(answer.took);
    }

    /// Holds what was acknowledged against `kept`, the names that are there, a line each.
    fn end(self, what: &str, kept: &str) {
        let kept: std::collections::HashSet<_> = kept.lines().collect();
        for name in &self.acknowledged {
            assert!(kept.contains(&**name), "{name} was acknowledged and is lost");
        }
        trial::measured(&format!(
            "{} {what}: 503 within {} ms, back within {} ms",
            self.acknowledged.len(),
            self.slowest_refusal.as_millis() + 1,
            self.slowest_return.as_millis() + 1
        ));
    }
}
