//! Promise 36: every acknowledged message reaches the web server, and through the documented bridge the stream.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::endpoint::{Delivery, reply};
use testkit::relayed::SECRET;
use testkit::{
    Bridge, Database, Endpoint, PostgresServer, Random, Request, Response, Server, Shop, new_message, trial, within,
};

/// Acknowledged messages per round, and clients that send them.
const MESSAGES: usize = 1_000;
const CLIENTS: usize = 8;

#[test]
fn acknowledged_messages_reach_the_stream_once() {
    Cluster::new(Shop::on_sqlite(), None, Receiver::bridge()).run();
}

#[test]
fn acknowledged_messages_reach_the_stream_once_from_postgresql() {
    run_on_postgresql(Receiver::bridge());
}

#[test]
fn acknowledged_messages_reach_the_endpoint() {
    Cluster::new(Shop::on_sqlite(), None, Receiver::endpoint()).run();
}

#[test]
fn acknowledged_messages_reach_the_endpoint_from_postgresql() {
    run_on_postgresql(Receiver::endpoint());
}

fn run_on_postgresql(receiver: Receiver) {
    let server = PostgresServer::start();
    let shop = Shop::on(Database::url(server.database()));
    Cluster::new(shop, Some(server), receiver).run();
}

/// The web server that receives the messages.
struct Receiver {
    server: WebServer,
    secrets: tempfile::NamedTempFile,
}

enum WebServer {
    Endpoint {
        server: Endpoint,
        /// The deliveries whose acknowledgement was written, in their order.
        acknowledged: Arc<Mutex<Vec<(String, String)>>>,
    },
    /// The stream of the bridge drops messages that it has.
    Bridge(Bridge),
}

impl Receiver {
    fn new(server: WebServer) -> Self {
        let secrets = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&secrets, SECRET).unwrap();
        Self { server, secrets }
    }

    fn bridge() -> Self {
        Self::new(WebServer::Bridge(Bridge::start(SECRET)))
    }

    fn endpoint() -> Self {
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&acknowledged);
        let server = Endpoint::start(move |delivery: &Delivery, out| {
            // Held meanwhile, so that nothing is marked as sent and not listed.
            let mut list = list.lock().unwrap();
            reply(out, "204 No Content", "")?;
            list.push((delivery.id().to_owned(), delivery.body.clone()));
            Ok(())
        });
        Self::new(WebServer::Endpoint { server, acknowledged })
    }

    const fn name(&self) -> &'static str {
        match self.server {
            WebServer::Endpoint { .. } => "endpoint",
            WebServer::Bridge(_) => "bridge or its broker",
        }
    }

    fn serve(&self, shop: &Shop) -> Server {
        let url = match &self.server {
            WebServer::Endpoint { server, .. } => server.url(),
            WebServer::Bridge(bridge) => bridge.url(),
        };
        let secrets = self.secrets.path().display();
        shop.database.serve_supervised(&format!("--relay {url} --relay-secret-file {secrets}"))
    }

    /// Kills the web server or, if there is one, `its_broker`.
    fn kill(&mut self, its_broker: bool) {
        match &mut self.server {
            WebServer::Endpoint { server, .. } => server.kill(),
            WebServer::Bridge(bridge) if its_broker => bridge.nats.kill(),
            WebServer::Bridge(bridge) => bridge.kill(),
        }
    }

    fn start_again(&mut self, its_broker: bool) {
        match &mut self.server {
            WebServer::Endpoint { server, .. } => server.start_again(),
            WebServer::Bridge(bridge) if its_broker => bridge.nats.start_again(),
            WebServer::Bridge(bridge) => bridge.start_again(),
        }
    }

    /// The ids and messages received.
    fn received(&self) -> Vec<(String, String)> {
        let events: Vec<_> = match &self.server {
            WebServer::Endpoint { acknowledged, .. } => acknowledged.lock().unwrap().clone(),
            WebServer::Bridge(bridge) => bridge.stored().into_iter().map(|stored| (stored.id, stored.body)).collect(),
        };
        let message = |event: String| event.split_once("\"data\":").unwrap().1.strip_suffix('}').unwrap().to_owned();
        events.into_iter().map(|(id, event)| (id, message(event))).collect()
    }
}

/// A database, a receiver, and two processes that accept and relay messages.
struct Cluster {
    receiver: Receiver,
    services: Vec<Server>,
    /// The current addresses of the messages listeners.
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    shop: Shop,
    /// The PostgreSQL server, if the database is on one. It is killed too.
    server: Option<PostgresServer>,
    random: Random,
    kills: HashMap<Fault, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    Server,
    Receiver,
    Database,
}

impl Cluster {
    fn new(shop: Shop, server: Option<PostgresServer>, receiver: Receiver) -> Self {
        let random = Random::from_seed();
        let services: Vec<_> = (0..2).map(|_| receiver.serve(&shop)).collect();
        let addresses = Arc::new(Mutex::new(services.iter().map(Server::messages).collect()));
        Self { receiver, services, addresses, shop, server, random, kills: HashMap::new() }
    }

    fn run(mut self) {
        let rounds = trial::rounds(3);
        let mut acknowledged = HashMap::new();
        for round in trial::counted(rounds) {
            let clients: Vec<_> = (0..CLIENTS).map(|client| self.client(format!("{round}-{client}"))).collect();
            self.inject_faults();
            clients.into_iter().for_each(|client| acknowledged.extend(client.join().unwrap()));
            let waiting = "SELECT count(*) FROM messages WHERE sent_at IS NULL";
            within(Duration::from_secs(120), "relaying every message", || self.shop.database.sql(waiting) == "0");
        }
        assert_eq!(acknowledged.len(), rounds as usize * MESSAGES);
        let (missing, doubled) = compare(&acknowledged, &self.receiver.received());
        assert!(missing.is_empty(), "{} of {} are missing: {:?}", missing.len(), acknowledged.len(), missing.first());
        assert!(
            doubled == 0 || matches!(self.receiver.server, WebServer::Endpoint { .. }),
            "{doubled} in the stream twice"
        );
        let kills = |fault| self.kills.get(&fault).copied().unwrap_or_default();
        let figure = format!(
            "{rounds} x {MESSAGES} messages with {} kills of a relay, {} of the {} and {} of the database: 0 missing, \
             {doubled} twice",
            kills(Fault::Server),
            kills(Fault::Receiver),
            self.receiver.name(),
            kills(Fault::Database),
        );
        let control = self.lose_marked_messages();
        trial::measured(&format!("{figure}; marked before the acknowledgement, {control} are missing"));
    }

    /// Sends messages to the processes in turn until enough are acknowledged. Returns their ids and bodies.
    fn client(&self, name: String) -> JoinHandle<HashMap<String, String>> {
        let (addresses, key) = (Arc::clone(&self.addresses), self.shop.key.clone());
        thread::spawn(move || {
            let mut acknowledged = HashMap::new();
            let began = Instant::now();
            for attempt in 0.. {
                if acknowledged.len() == MESSAGES / CLIENTS {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(120), "{name}: {} acknowledged", acknowledged.len());
                let address = addresses.lock().unwrap()[attempt % 2];
                let request = Request::new(address, "POST", "/v1/messages").key(&key);
                match request.json(new_message(&format!("{name}-{attempt}"))).try_send_blocking() {
                    Ok(response) if response.status() == 202 => _ = acknowledged.insert(id(&response), response.body),
                    // Without a response, the process was killed: the message may be stored or not.
                    other => {
                        assert!(other.is_err() || other.as_ref().unwrap().status() == 503, "{other:?}");
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            acknowledged
        })
    }

    /// Kills everything once, in random order and at random times, and restarts it.
    fn inject_faults(&mut self) {
        let mut faults = vec![Fault::Server, Fault::Server, Fault::Receiver];
        faults.extend(self.server.iter().map(|_| Fault::Database));
        while !faults.is_empty() {
            let fault = faults.swap_remove(self.random.index(faults.len()));
            self.random.sleep(0..200);
            *self.kills.entry(fault).or_default() += 1;
            match fault {
                Fault::Receiver => {
                    let its_broker = self.random.index(2) == 0;
                    self.receiver.kill(its_broker);
                    self.random.sleep(0..300);
                    self.receiver.start_again(its_broker);
                }
                Fault::Database => {
                    let server = self.server.as_ref().unwrap();
                    server.control(&["stop", "-m", "immediate"]);
                    self.random.sleep(0..300);
                    server.control(&["start"]);
                }
                Fault::Server => {
                    let which = self.random.index(2);
                    self.services[which].kill();
                    self.random.sleep(0..300);
                    self.services[which] = self.receiver.serve(&self.shop);
                    self.addresses.lock().unwrap()[which] = self.services[which].messages();
                }
            }
        }
    }

    /// Control: messages are marked as sent, and the relay is killed before the receiver has them. Returns the number of
    /// missing messages.
    fn lose_marked_messages(mut self) -> usize {
        self.services.iter_mut().for_each(|service| service.kill());
        self.receiver.kill(false);
        let alone = self.shop.database.serve();
        let mut acknowledged = HashMap::new();
        for n in 0..20 {
            let response = alone.send_message(&self.shop.key, &format!("control-{n}"));
            acknowledged.insert(id(&response), response.body);
        }
        self.shop.database.sql("UPDATE messages SET sent_at = 1795167000123 WHERE sent_at IS NULL");
        self.receiver.start_again(false);
        let _relay = self.receiver.serve(&self.shop);
        let last = id(&alone.send_message(&self.shop.key, "the last one"));
        within(Duration::from_secs(30), "relaying the last message", || {
            self.receiver.received().iter().any(|(id, _)| *id == last)
        });
        let (missing, _) = compare(&acknowledged, &self.receiver.received());
        assert_eq!(missing.len(), 20, "the comparison does not notice missing messages");
        missing.len()
    }
}

fn id(response: &Response) -> String {
    response.json()["id"].as_str().unwrap().to_owned()
}

/// Returns the ids of messages that are missing or differ, and the number of messages stored more than once.
fn compare(acknowledged: &HashMap<String, String>, received: &[(String, String)]) -> (Vec<String>, usize) {
    let mut found: HashMap<&str, (usize, &str)> = HashMap::new();
    for (id, body) in received {
        found.entry(id).or_insert((0, body)).0 += 1;
    }
    let is_there = |id: &str, body: &str| found.get(id).is_some_and(|(_, stored)| *stored == body);
    let missing = acknowledged.iter().filter(|(id, body)| !is_there(id, body)).map(|(id, _)| id.clone()).collect();
    (missing, found.values().filter(|(count, _)| *count > 1).count())
}
