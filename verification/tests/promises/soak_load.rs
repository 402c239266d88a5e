//! Clients of a soak: they read and write as a customer and as staff, and repeat each write with its idempotency key until
//! it succeeds. Outside of announced disturbances, no request may fail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Certificate, Random, Request, Response, Stop, TIMEOUT, new_message, new_pet};
use tokio::net::TcpStream;
use tokio::time::timeout;
use verification::Ledger;
use verification::writers::is_late;

use crate::orders::{APPROVED, CANCELLED, DELIVERED, Entry, PLACED};

/// Pause of a client between two requests, and after a failed one.
const PAUSE: Duration = Duration::from_millis(40);
const RETRY: Duration = Duration::from_millis(200);

/// The account of a request, by the index of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Staff,
    Customer,
}

use Caller::{Customer, Staff};

pub struct Traffic {
    /// The keys of staff and of a customer.
    pub keys: [RwLock<String>; 2],
    pub ledger: Ledger,
    /// The orders of the customer.
    pub orders: Mutex<Vec<Entry>>,
    /// The addresses of the store and messages listeners of each process.
    pub addresses: Vec<(SocketAddr, SocketAddr)>,
    /// The authority of the certificates. `None` without TLS.
    pub authority: Option<Certificate>,
    disturbance: Mutex<Disturbance>,
    latencies: Mutex<Vec<Duration>>,
    /// Failures within disturbances: statuses 503 and 409 with `Retry-After`, and broken connections.
    pub announced: AtomicU64,
    pub requests: AtomicU64,
    violations: Mutex<Vec<String>>,
    newest: AtomicI64,
    pub stop: Stop,
}

#[derive(Default)]
struct Disturbance {
    under_way: bool,
    ended: Option<Instant>,
}

impl Traffic {
    pub fn new(keys: [String; 2], addresses: Vec<(SocketAddr, SocketAddr)>, authority: Option<Certificate>) -> Self {
        Self {
            keys: keys.map(RwLock::new),
            ledger: Ledger::default(),
            orders: Mutex::default(),
            addresses,
            authority,
            disturbance: Mutex::default(),
            latencies: Mutex::default(),
            announced: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            violations: Mutex::default(),
            newest: AtomicI64::new(0),
            stop: Stop::new(),
        }
    }

    /// Records animals that were imported, their ids by name.
    pub fn imported(&self, animals: HashMap<String, String>) {
        let newest = animals.values().map(|id| id.parse().unwrap()).max();
        self.newest.store(newest.unwrap_or_default(), Ordering::Relaxed);
        self.ledger.imported(animals);
    }

    /// Allows requests to fail while `work` runs.
    pub fn disturbed<T>(&self, work: impl FnOnce() -> T) -> T {
        self.disturbance.lock().unwrap().under_way = true;
        let done = work();
        *self.disturbance.lock().unwrap() = Disturbance { under_way: false, ended: Some(Instant::now()) };
        done
    }

    fn may_fail(&self, sent: Instant) -> bool {
        let disturbance = self.disturbance.lock().unwrap();
        disturbance.under_way || disturbance.ended.is_some_and(|ended| ended > sent)
    }

    pub fn take_latencies(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.latencies.lock().unwrap())
    }

    pub fn violation(&self, why: String) {
        eprintln!("soak: {why}");
        self.violations.lock().unwrap().push(why);
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// Works as one client until the traffic is stopped.
    pub fn work(&self, client: usize, random: &mut Random) {
        for number in 0.. {
            if self.stop.is_requested() {
                return;
            }
            match random.below(20) {
                0..10 => self.list(random),
                10..14 => self.get(random),
                14..17 => _ = self.write(random, &format!("animal-{client}-{number};"), false),
                17..18 => self.order(random, &format!("ordered-{client}-{number};")),
                _ => _ = self.write(random, &format!("message-{client}-{number};"), true),
            }
            thread::sleep(PAUSE);
        }
    }

    fn list(&self, random: &mut Random) {
        let after = random.below(self.newest.load(Ordering::Relaxed) as u64 + 1);
        self.read(random, &format!("/v1/pets?limit=20&after={after}"));
    }

    /// Gets the newest animal. Ids have gaps, so another one may be missing.
    fn get(&self, random: &mut Random) {
        let newest = self.newest.load(Ordering::Relaxed);
        if newest > 0 {
            self.read(random, &format!("/v1/pets/{newest}"));
        }
    }

    fn read(&self, random: &mut Random, path: &str) {
        let caller = any(random);
        self.send(random.index(self.addresses.len()), caller, false, |address| Request::new(address, "GET", path));
    }

    /// Creates an animal or sends a message. Returns the response. `None` if the traffic is stopped before it succeeds.
    fn write(&self, random: &mut Random, name: &str, message: bool) -> Option<Response> {
        self.ledger.sent(name);
        let (path, body) = if message { ("/v1/messages", new_message(name)) } else { ("/v1/pets", new_pet(name)) };
        let caller = any(random);
        let response = self.post(random, caller, path, &body, name)?;
        self.ledger.answered(name, &response);
        if !message {
            self.newest.fetch_max(response.id(), Ordering::Relaxed);
        }
        Some(response)
    }

    /// Orders a new animal as the customer. Then the customer cancels the order, or staff approve and deliver it.
    fn order(&self, random: &mut Random, name: &str) {
        let Some(animal) = self.write(random, name, false) else { return };
        let (pet, path) = (animal.id(), "/v1/store/orders");
        let Some(placed) = self.post(random, Customer, path, &format!(r#"{{"petId":{pet}}}"#), name) else { return };
        let (id, approve, deliver) = (placed.id(), ("approve", Staff, APPROVED), ("deliver", Staff, DELIVERED));
        let mut entry = Entry { id, pet, status: PLACED, requested: None };
        let steps = match random.below(4) {
            0 => &[][..],
            1 => &[("cancel", Customer, CANCELLED)],
            2 => &[approve, ("cancel", any(random), CANCELLED)],
            _ => &[approve, deliver],
        };
        for (step, caller, to) in steps {
            entry.requested = Some(*to);
            if self.post(random, *caller, &format!("{path}/{id}/{step}"), "", name).is_none() {
                break;
            }
            (entry.status, entry.requested) = (*to, None);
        }
        self.orders.lock().unwrap().push(entry);
    }

    /// Sends a POST until it succeeds. `None` if the traffic is stopped first: then the outcome is unknown.
    fn post(&self, random: &mut Random, caller: Caller, path: &str, body: &str, key: &str) -> Option<Response> {
        loop {
            let process = random.index(self.addresses.len());
            let response = self.send(process, caller, path == "/v1/messages", |address| {
                Request::new(address, "POST", path).json(body).header("idempotency-key", key)
            });
            // After a violation, or without a service, the write keeps its unknown outcome.
            if response.is_some() || self.stop.is_requested() {
                return response;
            }
            thread::sleep(RETRY);
        }
    }

    /// Returns a successful response. Records a failure as announced or as a violation.
    fn send(
        &self,
        process: usize,
        caller: Caller,
        message: bool,
        request: impl Fn(SocketAddr) -> Request,
    ) -> Option<Response> {
        let (store, messages) = self.addresses[process];
        let address = if message { messages } else { store };
        let request = request(address).key(&self.keys[caller as usize].read().unwrap());
        let (method, sent) = (if message { "message" } else { "request" }, Instant::now());
        self.requests.fetch_add(1, Ordering::Relaxed);
        let why = match self.exchange(address, request) {
            Ok(response) if (200..300).contains(&response.status()) => {
                self.latencies.lock().unwrap().push(response.took);
                return Some(response);
            }
            Ok(response) if response.retry_after().is_some() && (self.may_fail(sent) || is_late(&response)) => None,
            Err(_) if self.may_fail(sent) => None,
            Ok(response) => Some(format!("{response:?}")),
            Err(error) => Some(error),
        };
        match why {
            None => _ = self.announced.fetch_add(1, Ordering::Relaxed),
            Some(why) => self.violation(format!("a {method} failed: {why}")),
        }
        None
    }

    /// Sends a request over a connection of its own.
    pub fn exchange(&self, address: SocketAddr, request: Request) -> Result<Response, String> {
        let exchange = async {
            match &self.authority {
                None => {
                    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
                    request.try_send_over(stream).await.map_err(|error| error.to_string())
                }
                Some(authority) => {
                    let stream = authority.try_connect(address, rustls::ALL_VERSIONS).await;
                    request
                        .try_send_over(stream.map_err(|error| error.to_string())?)
                        .await
                        .map_err(|error| error.to_string())
                }
            }
        };
        thread_local!(static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
        RUNTIME
            .with(|runtime| runtime.block_on(async { timeout(TIMEOUT, exchange).await }))
            .unwrap_or_else(|_| Err("no response".to_owned()))
    }
}

fn any(random: &mut Random) -> Caller {
    if random.below(2) == 0 { Staff } else { Customer }
}
