//! Clients that create, read and order a few animals as customers and as staff, and record what they see.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Connection, Random, Request, Response, new_pet};

use crate::animal_model::{KEYS, Operation, Placed, Status};
use crate::linearizability::{Event, UNKNOWN};

/// Operations of each client in a round.
const OPERATIONS: usize = 40;

/// Pause of a client while a process or the database is down. Otherwise, no operations would be left for afterwards.
const PAUSE: Duration = Duration::from_millis(50);

/// Index of the key of staff. All others are customers'.
const STAFF: usize = 0;

/// Index of an account's key.
type Caller = usize;

pub struct Run {
    pub began: Instant,
    /// The keys of staff and of a customer for each idempotency key, which belongs to this customer.
    pub keys: [String; 1 + KEYS],
    /// The current addresses of the store listeners.
    pub addresses: RwLock<Vec<SocketAddr>>,
}

/// An animal and the operations that clients executed on it.
pub struct Subject {
    name: String,
    /// Zero until it is created.
    id: AtomicI64,
    /// The known orders, with their owners.
    orders: Mutex<Vec<(i64, Caller)>>,
    history: Mutex<Vec<Event<Operation>>>,
}

impl Subject {
    pub const fn new(name: String) -> Self {
        Self { name, id: AtomicI64::new(0), orders: Mutex::new(Vec::new()), history: Mutex::new(Vec::new()) }
    }

    /// Returns the history. If an order's id is unknown, takes it from another response to the same idempotency key.
    pub fn history(self) -> Vec<Event<Operation>> {
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

    /// Returns a placeholder for an unknown order id. Requests with the same idempotency key get the same placeholder.
    fn unknown_order(&self, key: Option<usize>) -> i64 {
        static NEXT: AtomicI64 = AtomicI64::new(KEYS as i64 + 1);
        -key.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |key| key as i64 + 1)
    }
}

pub struct Client<'a> {
    run: &'a Run,
    connections: HashMap<SocketAddr, Connection>,
}

impl<'a> Client<'a> {
    pub fn new(run: &'a Run) -> Self {
        Self { run, connections: HashMap::new() }
    }

    pub fn work(&mut self, animals: &[Subject], random: &mut Random) {
        for _ in 0..OPERATIONS {
            let animal = &animals[random.index(animals.len())];
            let address = {
                let addresses = self.run.addresses.read().unwrap();
                addresses[random.index(addresses.len())]
            };
            match (animal.id.load(Ordering::SeqCst), random.below(10)) {
                (0, _) => self.create(address, animal, random),
                (_, 0..2) => self.get(address, animal, random),
                (_, 2..5) => self.list(address, animal, random),
                (_, 5..7) => self.place(address, animal, random),
                _ => self.transition(address, animal, random),
            }
        }
    }

    /// Sends a request. Returns its times and its response. The response is `None` if the outcome is unknown. Returns `None`
    /// if the service did not execute the request, because such a request is not part of the history.
    fn send(&mut self, address: SocketAddr, request: &Request) -> Option<(u64, u64, Option<Response>)> {
        let connection = self.connections.remove(&address).or_else(|| Connection::open(address).ok());
        let Some(mut connection) = connection else {
            // The process was killed.
            thread::sleep(PAUSE);
            return None;
        };
        let sent = self.run.now();
        let response = connection.send(request).ok();
        let answered = self.run.now();
        let Some(response) = response else { return Some((sent, UNKNOWN, None)) };
        self.connections.insert(address, connection);
        match response.status() {
            503 => {
                thread::sleep(PAUSE);
                Some((sent, UNKNOWN, None))
            }
            // Another process executes a request with this idempotency key.
            409 if response.says_to_retry() => None,
            _ => Some((sent, answered, Some(response))),
        }
    }

    fn request(&self, caller: Caller, address: SocketAddr, method: &str, path: &str) -> Request {
        Request::new(address, method, path).key(&self.run.keys[caller])
    }

    /// A request by any account.
    fn request_by_any(&self, random: &mut Random, address: SocketAddr, method: &str, path: &str) -> Request {
        self.request(random.index(self.run.keys.len()), address, method, path)
    }

    /// Creates the animal. Several clients may try; all but one create another animal, which is not examined.
    fn create(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let request = self.request_by_any(random, address, "POST", "/v1/pets").json(new_pet(&animal.name));
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 201, "{response:?}");
        let mut history = animal.history.lock().unwrap();
        if animal.id.compare_exchange(0, response.id(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            history.push(Event { sent, answered, operation: Operation::Create });
        }
    }

    fn get(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let path = format!("/v1/pets/{}", animal.id.load(Ordering::SeqCst));
        let request = self.request_by_any(random, address, "GET", &path);
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 200, "{response:?}");
        let status = status(&response.json());
        animal.add(sent, answered, Operation::Observe { status, has: true });
    }

    /// Lists animals with a status, from this animal on.
    fn list(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let (id, status) = (animal.id.load(Ordering::SeqCst), STATUSES[random.index(STATUSES.len())]);
        let path = format!("/v1/pets?limit=1&status={status}&after={}", id - 1);
        let request = self.request_by_any(random, address, "GET", &path);
        let Some((sent, answered, Some(response))) = self.send(address, &request) else { return };
        assert_eq!(response.status(), 200, "{response:?}");
        let has = response.json()[0]["id"] == id;
        animal.add(sent, answered, Operation::Observe { status, has });
    }

    fn place(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let key = (random.below(2) == 0).then(|| random.index(KEYS));
        let caller = key.map_or_else(|| random.index(self.run.keys.len()), |key| 1 + key);
        let body = format!(r#"{{"petId":{}}}"#, animal.id.load(Ordering::SeqCst));
        let mut request = self.request(caller, address, "POST", "/v1/store/orders").json(body);
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
            animal.orders.lock().unwrap().push((order, caller));
        }
    }

    /// Approves, delivers or cancels an order, mostly the newest one. Customers may only cancel their own.
    fn transition(&mut self, address: SocketAddr, animal: &Subject, random: &mut Random) {
        let (order, owner) = {
            let orders = animal.orders.lock().unwrap();
            let Some(newest) = orders.last() else { return };
            if random.below(4) > 0 { *newest } else { orders[random.index(orders.len())] }
        };
        // A sold animal stays sold, so few orders are delivered.
        let (to, verb) = match random.below(8) {
            0..3 => (Status::Approved, "approve"),
            3 => (Status::Delivered, "deliver"),
            _ => (Status::Cancelled, "cancel"),
        };
        let caller = match random.below(8) {
            0 => random.index(self.run.keys.len()),
            1..5 if to == Status::Cancelled => owner,
            _ => STAFF,
        };
        let refusal = match to {
            _ if caller == STAFF => None,
            Status::Cancelled if caller == owner => None,
            Status::Cancelled => Some(404),
            _ => Some(403),
        };
        let request = self.request(caller, address, "POST", &format!("/v1/store/orders/{order}/{verb}"));
        let Some((sent, answered, response)) = self.send(address, &request) else { return };
        if let Some(refusal) = refusal {
            // The request has no effect, so it is not part of the history.
            assert!(response.is_none_or(|response| response.status() == refusal), "{verb} by another customer");
            return;
        }
        let done = response.map(|response| {
            assert!(matches!(response.status(), 200 | 409), "{response:?}");
            response.status() == 200
        });
        animal.add(sent, answered, Operation::Move { order, to, done });
    }
}

impl Run {
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

const STATUSES: [&str; 3] = ["available", "pending", "sold"];

fn status(pet: &serde_json::Value) -> &'static str {
    STATUSES.into_iter().find(|status| pet["status"] == *status).unwrap()
}
