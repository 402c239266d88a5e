//! Promise 37: the API is linearizable. Whatever concurrent clients see of an animal, its orders and idempotency keys, over
//! all processes and through crashes, one order of the operations explains it. A revoked API key stays accepted for at most
//! a second in other processes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{query, sessions};
use testkit::{Connection, Database, PostgresServer, Random, Request, Response, Server, new_pet, trial};

use crate::animal_model::{Animal, ApiKey, KEYS, KeyOperation, Operation, Placed, Status};
use crate::linearizability::{Event, UNKNOWN, is_linearizable};

/// Clients, animals and operations of each client in a round. An animal gets about twenty operations.
const CLIENTS: usize = 8;
const ANIMALS: usize = 16;
const OPERATIONS: usize = 40;

/// One in so many rounds has a crash.
const CRASH_EVERY: u32 = 20;

/// Time in which other processes notice that a key is revoked.
const REVOCATION: Duration = Duration::from_secs(1);

#[test]
fn embedded_database_is_linearizable_in_one_process() {
    check(&Database::temporary(), 1, || ());
}

#[test]
fn embedded_database_is_linearizable_over_processes() {
    check(&Database::temporary(), processes(), || ());
}

#[test]
fn postgresql_is_linearizable_over_processes() {
    let url = PostgresServer::shared().database();
    let sessions_of_petstore = "datname = current_database() AND application_name = 'petstore'";
    let terminate = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {sessions_of_petstore}");
    check(&Database::url(&url), processes(), || {
        assert!(sessions(&url, sessions_of_petstore) > 0);
        query(&url, &terminate);
    });
}

fn processes() -> usize {
    if trial::is_full() { 3 } else { 2 }
}

/// Runs rounds of clients and checks the history of each animal. Some rounds have crashes: of a process by SIGKILL, and
/// of the database's sessions by `crash`.
fn check(database: &Database, processes: usize, crash: impl Fn() + Sync) {
    let rounds = trial::rounds(6);
    let mut random = Random::from_seed();
    let key = database.make_key();
    let mut servers: Vec<_> = (0..processes).map(|_| database.serve()).collect();
    let run = Run { began: Instant::now(), key, addresses: RwLock::default() };
    let (mut operations, mut unknown, mut crashes, mut caught) = (0, 0, 0, 0);
    for round in trial::counted(rounds) {
        *run.addresses.write().unwrap() = servers.iter().map(Server::store).collect();
        let animals: Vec<_> = (0..ANIMALS).map(|number| Subject::new(format!("{round}-{number}"))).collect();
        // The last round has one, too, so that a short run has a crash.
        let is_crash = round % CRASH_EVERY == 0 || round == rounds;
        let killed = is_crash.then(|| random.index(processes));
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (mut random, run, animals) = (random.another(), &run, &animals);
                scope.spawn(move || Client { run, connections: HashMap::new() }.work(animals, &mut random));
            }
            if let Some(killed) = killed {
                random.sleep(20..100);
                crash();
                random.sleep(0..50);
                servers[killed].kill();
                servers[killed] = database.serve_supervised("");
                run.addresses.write().unwrap()[killed] = servers[killed].store();
                crashes += 1;
            }
        });
        for animal in animals {
            let history = animal.history();
            operations += history.len();
            unknown += history.iter().filter(|event| event.answered == UNKNOWN).count();
            assert!(is_linearizable::<Animal>(&history), "{history:#?}");
            caught += u32::from(stale_read_is_caught(history));
        }
    }
    assert!(caught > 0, "no history had a read to falsify");
    let keys = rounds.div_ceil(CRASH_EVERY);
    let uses: usize = (0..keys).map(|number| revoke_a_key(database, &run, number)).sum();
    trial::measured(&format!(
        "{processes} processes: {operations} operations, {unknown} of them with an unknown outcome, in {crashes} crashes, and \
         {uses} uses of {keys} revoked keys: 0 violations; a false read in each of {caught} histories is caught"
    ));
}

struct Run {
    began: Instant,
    key: String,
    /// The current addresses of the store listeners.
    addresses: RwLock<Vec<SocketAddr>>,
}

/// An animal and what its clients saw of it.
struct Subject {
    name: String,
    /// Zero until it is created.
    id: AtomicI64,
    /// The known orders.
    orders: Mutex<Vec<i64>>,
    history: Mutex<Vec<Event<Operation>>>,
}

impl Subject {
    const fn new(name: String) -> Self {
        Self { name, id: AtomicI64::new(0), orders: Mutex::new(Vec::new()), history: Mutex::new(Vec::new()) }
    }

    /// Returns the history. An order whose id was not in its response has it from another response to its key.
    fn history(self) -> Vec<Event<Operation>> {
        let mut history = self.history.into_inner().unwrap();
        let placed = |event: &Event<Operation>| match event.operation {
            Operation::Place { key: Some(key), order, .. } if order > 0 => Some((key, order)),
            _ => None,
        };
        let known: HashMap<_, _> = history.iter().filter_map(placed).collect();
        for event in &mut history {
            if let Operation::Place { key: Some(key), order, .. } = &mut event.operation {
                *order = known.get(key).copied().unwrap_or(*order);
            }
        }
        history
    }

    fn add(&self, sent: u64, answered: u64, operation: Operation) {
        self.history.lock().unwrap().push(Event { sent, answered, operation });
    }

    /// An id of an order that is unknown to the client: the same for each request with one idempotency key.
    fn unknown_order(&self, key: Option<usize>) -> i64 {
        static NEXT: AtomicI64 = AtomicI64::new(KEYS as i64 + 1);
        -key.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |key| key as i64 + 1)
    }
}

struct Client<'a> {
    run: &'a Run,
    connections: HashMap<SocketAddr, Connection>,
}

impl Client<'_> {
    fn work(&mut self, animals: &[Subject], random: &mut Random) {
        for _ in 0..OPERATIONS {
            let animal = &animals[random.index(animals.len())];
            let address = {
                let addresses = self.run.addresses.read().unwrap();
                addresses[random.index(addresses.len())]
            };
            match (animal.id.load(Ordering::SeqCst), random.below(10)) {
                (0, _) => self.create(address, animal),
                (_, 0..2) => self.get(address, animal),
                (_, 2..5) => self.list(address, animal, random),
                (_, 5..7) => self.place(address, animal, random),
                _ => self.transition(address, animal, random),
            }
        }
    }

    /// Sends a request. Returns its times and its response, `None` if the outcome is unknown. Requests that the service
    /// did not execute are not part of the history: `None` for the times.
    fn send(&mut self, address: SocketAddr, request: &Request) -> Option<(u64, u64, Option<Response>)> {
        let connection = match self.connections.remove(&address) {
            Some(open) => Some(open),
            None => Connection::open(address).ok(),
        };
        // The process was killed.
        let mut connection = connection?;
        let sent = self.run.now();
        let response = connection.send(request).ok();
        let answered = self.run.now();
        let Some(response) = response else { return Some((sent, UNKNOWN, None)) };
        self.connections.insert(address, connection);
        match response.status() {
            503 => Some((sent, UNKNOWN, None)),
            // Another process executes a request with this idempotency key.
            409 if response.says_to_retry() => None,
            _ => Some((sent, answered, Some(response))),
        }
    }

    fn request(&self, address: SocketAddr, method: &str, path: &str) -> Request {
        Request::new(address, method, path).key(&self.run.key)
    }

    /// Creates the animal. Several clients may try; all but one create another animal, which is not examined.
    fn create(&mut self, address: SocketAddr, animal: &Subject) {
        let request = self.request(address, "POST", "/v1/pets").json(new_pet(&animal.name));
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 201, "{response:?}");
        let mut history = animal.history.lock().unwrap();
        if animal.id.compare_exchange(0, response.id(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            history.push(Event { sent, answered, operation: Operation::Create });
        }
    }

    fn get(&mut self, address: SocketAddr, animal: &Subject) {
        let request = self.request(address, "GET", &format!("/v1/pets/{}", animal.id.load(Ordering::SeqCst)));
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 200, "{response:?}");
        let status = status(&response.json());
        animal.add(sent, answered, Operation::Observe { status, has: true });
    }

    /// Lists animals with a status, from this animal on.
    fn list(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let (id, status) = (animal.id.load(Ordering::SeqCst), STATUSES[random.index(STATUSES.len())]);
        let path = format!("/v1/pets?limit=1&status={status}&after={}", id - 1);
        let request = self.request(address, "GET", &path);
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 200, "{response:?}");
        let has = response.json()[0]["id"] == id;
        animal.add(sent, answered, Operation::Observe { status, has });
    }

    fn place(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let key = (random.below(2) == 0).then(|| random.index(KEYS));
        let body = format!(r#"{{"petId":{}}}"#, animal.id.load(Ordering::SeqCst));
        let mut request = self.request(address, "POST", "/v1/store/orders").json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", &format!("{}-{key}", animal.name));
        }
        let Some((sent, answered, response)) = self.send(address, &request) else { return };
        let (order, done) = match &response {
            None => (animal.unknown_order(key), None),
            Some(response) if response.status() == 409 => (animal.unknown_order(key), Some(Placed::Refused)),
            Some(response) => {
                assert_eq!(response.status(), 201, "{response:?}");
                let replayed = if response.is_replayed() { Placed::Replayed } else { Placed::Executed };
                (response.id(), Some(replayed))
            }
        };
        animal.add(sent, answered, Operation::Place { key, order, done });
        if order > 0 {
            animal.orders.lock().unwrap().push(order);
        }
    }

    /// Approves, delivers or cancels an order: mostly the newest one.
    fn transition(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let order = {
            let orders = animal.orders.lock().unwrap();
            let Some(newest) = orders.last() else { return };
            if random.below(4) > 0 { *newest } else { orders[random.index(orders.len())] }
        };
        // An animal that is sold stays so, so few orders are delivered.
        let (to, verb) = match random.below(8) {
            0..3 => (Status::Approved, "approve"),
            3 => (Status::Delivered, "deliver"),
            _ => (Status::Cancelled, "cancel"),
        };
        let request = self.request(address, "POST", &format!("/v1/store/orders/{order}/{verb}"));
        let Some((sent, answered, response)) = self.send(address, &request) else { return };
        let done = response.map(|response| {
            assert!(matches!(response.status(), 200 | 409), "{response:?}");
            response.status() == 200
        });
        animal.add(sent, answered, Operation::Move { order, to, done });
    }
}

impl Run {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

const STATUSES: [&str; 3] = ["available", "pending", "sold"];

fn status(pet: &serde_json::Value) -> &'static str {
    STATUSES.into_iter().find(|status| pet["status"] == *status).unwrap()
}

/// Control: falsifies a read that no other operation overlaps, which must be a violation. Returns false if there is none.
fn stale_read_is_caught(mut history: Vec<Event<Operation>>) -> bool {
    let overlaps = |a: &Event<Operation>, b: &Event<Operation>| a.sent <= b.answered && b.sent <= a.answered;
    let is_alone = |at: &usize| {
        let others = history.iter().enumerate().filter(|(other, _)| other != at);
        matches!(history[*at].operation, Operation::Observe { .. })
            && others.map(|(_, other)| other).all(|other| !overlaps(&history[*at], other))
    };
    let Some(read) = (0..history.len()).rev().find(is_alone) else { return false };
    let Operation::Observe { has, .. } = &mut history[read].operation else { unreachable!("it is a read") };
    *has = !*has;
    assert!(!is_linearizable::<Animal>(&history), "a false read is not caught: {read} of {history:#?}");
    true
}

/// Uses a key in all processes while it is revoked. Returns the number of uses.
fn revoke_a_key(database: &Database, run: &Run, number: u32) -> usize {
    let key = database.key_of(&format!("owner-{number}@example.com"));
    let id = database.sql("SELECT max(id) FROM api_keys");
    let history = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let addresses = run.addresses.read().unwrap().clone();
        for address in addresses {
            let (history, key) = (&history, &key);
            scope.spawn(move || {
                let mut connection = Connection::open(address).unwrap();
                let request = Request::new(address, "GET", "/v1/pets?limit=1").key(key);
                for _ in 0..USES {
                    let sent = run.now();
                    let accepted = connection.send(&request).unwrap().status() == 200;
                    let operation = KeyOperation::Use { accepted };
                    history.lock().unwrap().push(Event { sent, answered: run.now(), operation });
                    thread::sleep(PAUSE);
                }
            });
        }
        thread::sleep(PAUSE * USES as u32 / 4);
        let sent = run.now();
        database.run(&format!("key revoke {id}"));
        // Other processes may notice it later.
        let answered = run.now() + REVOCATION.as_nanos() as u64;
        history.lock().unwrap().push(Event { sent, answered, operation: KeyOperation::Revoke });
    });
    let history = history.into_inner().unwrap();
    assert!(is_linearizable::<ApiKey>(&history), "a key is accepted after it was revoked: {history:#?}");
    history.len() - 1
}

/// Uses of a revoked key per process, and the pause after each.
const USES: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);
