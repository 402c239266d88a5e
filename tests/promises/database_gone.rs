//! Promise 15: without its database the service refuses in time, and comes back by itself.

use std::time::Duration;

use crate::network::Network;
use crate::postgres_server::Server;
use crate::process::{Database, Process, within};

const ROUNDS: u32 = 2;

#[test]
fn a_server_that_stops_is_503_and_comes_back() {
    let server = Server::start();
    let database = Database::url(server.database());
    let key = database.make_key();
    let service = Process::serve(&database);
    for round in 0..ROUNDS {
        assert_eq!(service.create_pet(&key, &format!("before-{round}")).status, 201);
        // With and without a word to its clients.
        server.control(&["stop", "-m", if round % 2 == 0 { "immediate" } else { "fast" }]);
        refuses(&service, &key);
        server.control(&["start"]);
        comes_back(&service, &key);
    }
    let listed = service.get("/v1/pets?limit=100", &key).text;
    for round in 0..ROUNDS {
        assert!(listed.contains(&format!("\"before-{round}\"")), "{round} was acknowledged: {listed}");
    }
}

#[test]
fn a_network_that_goes_silent_is_503_and_comes_back() {
    let server = Server::shared();
    let network = Network::to(server.port());
    let url = server.database().replace(&format!(":{}/", server.port()), &format!(":{}/", network.port));
    let database = Database::url(url);
    let key = database.make_key();
    let service = Process::serve(&database);
    for round in 0..ROUNDS {
        assert_eq!(service.create_pet(&key, &format!("before-{round}")).status, 201);
        network.silence(true);
        refuses(&service, &key);
        network.silence(false);
        comes_back(&service, &key);
    }
}

#[test]
fn without_a_database_the_service_does_not_start() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = Database::url(format!("postgres://ada:s3cret@127.0.0.1:{free}/shop"));
    let began = std::time::Instant::now();
    let ended = database.petstore("serve").output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("can't open the database postgres://ada:[hidden]@127.0.0.1:{free}/shop")), "{told}");
    assert!(told.contains("refused") && !told.contains("s3cret"), "{told}");
}

fn refuses(service: &Process, key: &str) {
    for _ in 0..2 {
        service.get("/v1/pets", key).assert_unavailable();
        service.create_pet(key, "meanwhile").assert_unavailable();
        service.send_message(key, "meanwhile").assert_unavailable();
        assert_eq!(service.get("/livez", key).status, 200);
        service.get("/readyz", key).assert_unavailable();
    }
}

fn comes_back(service: &Process, key: &str) {
    let took = within(Duration::from_secs(5), "coming back", || {
        service.create_pet(key, "after").status == 201
            && service.get("/v1/pets", key).status == 200
            && service.get("/readyz", key).status == 200
    });
    println!("back after {took:?}");
}
