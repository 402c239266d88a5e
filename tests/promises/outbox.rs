//! Promise 36: every message that was answered reaches the stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::blocking::try_send_message;
use testkit::nats::{STREAM, Stored};
use testkit::{NatsServer, PostgresServer, Random, SERVE, Server, trial, within};

use crate::shop::Shop;

/// How many messages are answered in each round, by how many clients.
const MESSAGES: usize = 1_000;
const CLIENTS: usize = 8;

#[test]
fn acknowledged_messages_reach_the_stream() {
    Yard::new(Shop::on_sqlite(), None).run();
}

#[test]
fn acknowledged_messages_reach_the_stream_from_postgresql() {
    let server = PostgresServer::start();
    let shop = Shop::at(server.database());
    Yard::new(shop, Some(server)).run();
}

/// A database, a broker, and two processes that take messages on and relay them.
struct Yard {
    broker: NatsServer,
    services: Vec<Server>,
    /// Where they are now.
    addresses: Arc<Mutex<Vec<String>>>,
    shop: Shop,
    /// PostgreSQL, where that is the database: it is killed too.
    server: Option<PostgresServer>,
    random: Random,
    kills: HashMap<Fault, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    Server,
    Broker,
    Database,
}

impl Yard {
    fn new(shop: Shop, server: Option<PostgresServer>) -> Self {
        let random = Random::from_seed();
        let broker = NatsServer::start();
        let services: Vec<_> = (0..2).map(|_| serve(&shop, &broker)).collect();
        let addresses = services.iter().map(|service| service.messages.clone()).collect();
        let addresses = Arc::new(Mutex::new(addresses));
        Self { broker, services, addresses, shop, server, random, kills: HashMap::new() }
    }

    fn run(mut self) {
        let rounds = trial::rounds(3);
        let mut answered = HashMap::new();
        for round in 1..=rounds {
            let clients: Vec<_> = (0..CLIENTS).map(|client| self.client(format!("{round}-{client}"))).collect();
            self.do_harm();
            clients.into_iter().for_each(|client| answered.extend(client.join().unwrap()));
            self.all_sent();
            if round % 10 == 0 {
                println!("round {round} of {rounds}: {} answered", answered.len());
            }
        }
        assert_eq!(answered.len(), rounds as usize * MESSAGES);
        let stored = self.broker.stored(STREAM);
        let (missing, doubled) = compare(&answered, &stored);
        assert!(missing.is_empty(), "{} of {} are missing: {:?}", missing.len(), answered.len(), missing.first());
        let kills = |fault| self.kills.get(&fault).copied().unwrap_or_default();
        let figure = format!(
            "{rounds} x {MESSAGES} messages with {} kills of a relay, {} of the broker and {} of the database: 0 missing, \
             {doubled} twice",
            kills(Fault::Server),
            kills(Fault::Broker),
            kills(Fault::Database),
        );
        let control = self.marked_too_early();
        trial::measured(&format!("{figure}; marked before the acknowledgement, {control} are missing"));
    }

    /// Sends messages to either process until enough were answered: their ids and bodies.
    fn client(&self, name: String) -> thread::JoinHandle<HashMap<String, String>> {
        let (addresses, key) = (Arc::clone(&self.addresses), self.shop.key.clone());
        thread::spawn(move || {
            let mut answered = HashMap::new();
            let began = Instant::now();
            for attempt in 0.. {
                if answered.len() == MESSAGES / CLIENTS {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(120), "{name}: only {} were answered", answered.len());
                let address = addresses.lock().unwrap()[attempt % 2].clone();
                match try_send_message(&address, &key, &format!("{name}-{attempt}")) {
                    Some(answer) if answer.status == 202 => {
                        let id = answer.json()["id"].as_str().unwrap().to_owned();
                        answered.insert(id, answer.body().to_owned());
                    }
                    Some(answer) => assert_eq!(answer.status, 503, "{answer:?}"),
                    // Killed before it was answered: it may be there or not.
                    None => thread::sleep(Duration::from_millis(5)),
                }
            }
            answered
        })
    }

    /// Kills everything once, in an order and at moments of chance, and starts it again.
    fn do_harm(&mut self) {
        let mut faults = vec![Fault::Server, Fault::Server, Fault::Broker];
        faults.extend(self.server.iter().map(|_| Fault::Database));
        while !faults.is_empty() {
            let fault = faults.swap_remove(self.random.below(faults.len() as u64) as usize);
            thread::sleep(Duration::from_millis(self.random.below(200)));
            *self.kills.entry(fault).or_default() += 1;
            let away = Duration::from_millis(self.random.below(300));
            match fault {
                Fault::Broker => {
                    self.broker.kill();
                    thread::sleep(away);
                    self.broker.start_again();
                }
                Fault::Database => {
                    let server = self.server.as_ref().unwrap();
                    server.control(&["stop", "-m", "immediate"]);
                    thread::sleep(away);
                    server.control(&["start"]);
                }
                Fault::Server => {
                    let which = self.random.below(2) as usize;
                    self.services[which].kill();
                    thread::sleep(away);
                    self.services[which] = serve(&self.shop, &self.broker);
                    self.addresses.lock().unwrap()[which].clone_from(&self.services[which].messages);
                }
            }
        }
    }

    /// Waits until the database says that no message waits.
    fn all_sent(&self) {
        let waiting = "SELECT CAST(count(*) AS TEXT) FROM messages WHERE sent_at IS NULL";
        within(Duration::from_secs(60), "relaying what waits", || self.shop.sql(waiting) == ["0"]);
    }

    /// The control: a relay that marks messages first, and then is killed before the broker has them.
    fn marked_too_early(mut self) -> usize {
        self.services.iter_mut().for_each(|service| service.kill());
        self.broker.kill();
        let alone = self.shop.database.serve();
        let mut answered = HashMap::new();
        for n in 0..20 {
            let answer = alone.send_message(&self.shop.key, &format!("control-{n}"));
            answered.insert(answer.json()["id"].as_str().unwrap().to_owned(), answer.body().to_owned());
        }
        self.shop.sql("UPDATE messages SET sent_at = 1795167000123 WHERE sent_at IS NULL");
        self.broker.start_again();
        let _relay = serve(&self.shop, &self.broker);
        // Those that come after them arrive.
        let last = alone.send_message(&self.shop.key, "the last one");
        let id = last.json()["id"].as_str().unwrap().to_owned();
        within(Duration::from_secs(30), "relaying the last one", || {
            self.broker.stored(STREAM).iter().any(|stored| stored.id == id)
        });
        let (missing, _) = compare(&answered, &self.broker.stored(STREAM));
        assert_eq!(missing.len(), 20, "that nothing is missing has been no proof");
        missing.len()
    }
}

/// Starts a process as a supervisor does: again where it ends, as it does where a busy database is slow to let it in.
fn serve(shop: &Shop, broker: &NatsServer) -> Server {
    let start = || {
        let mut command = shop.database.petstore(SERVE);
        command.args(["--relay", &broker.url()]);
        Server::try_start(command)
    };
    (0..10).find_map(|_| start()).expect("it starts at last")
}

/// The ids of those that are missing or differ, and how many are there more than once.
fn compare(answered: &HashMap<String, String>, stored: &[Stored]) -> (Vec<String>, usize) {
    let mut found: HashMap<&str, (usize, &str)> = HashMap::new();
    for message in stored {
        let entry = found.entry(&message.id).or_insert((0, &message.body));
        entry.0 += 1;
    }
    let is_there = |id: &str, body: &str| found.get(id).is_some_and(|(_, stored)| *stored == body);
    let missing = answered.iter().filter(|(id, body)| !is_there(id, body)).map(|(id, _)| id.clone()).collect();
    (missing, found.values().filter(|(count, _)| *count > 1).count())
}
