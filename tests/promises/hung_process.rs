//! Promise 45: a process that hangs in the middle of a batch on PostgreSQL delays other processes for a bounded time.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::blocking::{Response, new_pet, post_once};
use testkit::postgres::{query, try_query};
use testkit::{PostgresServer, Server, TIMEOUT, trial, within};

use crate::shop::Shop;

/// Maximum time of a request beside a hung process. PostgreSQL ends the hung transaction after half a second; the rest
/// is for the request, which takes longer beside other tests.
fn bound() -> Duration {
    Duration::from_millis(if trial::is_full() { 1_000 } else { 5_000 })
}

const LOCK_PETS: &str = "SELECT pg_advisory_xact_lock('pets'::regclass::int, 0)";

#[test]
fn hung_batch_of_orders_delays_others_within_the_bound() {
    let rounds = trial::rounds(2);
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let yard = Yard::new();
        let [contested, free] = ["contested", "free"].map(|name| yard.animal(name));
        let hung = yard.stop_in_keyed_batch(
            &format!("SELECT id FROM pets WHERE id = {contested} FOR UPDATE"),
            "/v1/store/orders",
            &order_of(contested),
        );
        // The second order may have to wait for the batch of the first.
        let first = yard.order_at_the_other(contested);
        thread::sleep(Duration::from_millis(50));
        let second = yard.order_at_the_other(free);
        for answer in [first, second].map(|order| order.join().unwrap()) {
            assert_eq!(answer.status, 201, "{answer:?}");
            slowest = slowest.max(answer.took);
        }
        hung.end();
    }
    assert!(slowest < bound(), "{slowest:?}");
    trial::measured(&format!("{rounds} processes stopped within a batch of orders: others took {slowest:?} at most"));
}

#[test]
fn hung_batch_of_animals_delays_others_within_the_bound() {
    let rounds = trial::rounds(2);
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let yard = Yard::new();
        let hung = yard.stop_in_keyed_batch(LOCK_PETS, "/v1/pets", &new_pet("hung"));
        let answer = yard.other.create_pet(&yard.shop.key, "other");
        assert_eq!(answer.status, 201, "{answer:?}");
        slowest = slowest.max(answer.took);
        hung.end();
    }
    assert!(slowest < bound(), "{slowest:?}");
    trial::measured(&format!("{rounds} processes stopped within a batch of animals: others took {slowest:?} at most"));
}

#[test]
fn abandoned_writes_do_not_wait_on_in_the_server() {
    let yard = Yard::new();
    let blocker = yard.hold(LOCK_PETS);
    for _ in 0..2 {
        yard.other.create_pet(&yard.shop.key, "refused").assert_unavailable();
    }
    within(Duration::from_secs(2), "giving up", || waiting(&yard.url) == 0);
    assert!(!blocker.thread.is_finished(), "the lock was free by then");
    blocker.release();
    assert_eq!(yard.other.create_pet(&yard.shop.key, "accepted").status, 201);
    assert_eq!(query(&yard.url, "SELECT name FROM pets"), "accepted");
}

/// A database and two processes on it.
struct Yard {
    url: String,
    shop: Shop,
    hanging: Server,
    other: Server,
}

impl Yard {
    fn new() -> Self {
        let url = PostgresServer::shared().database();
        let shop = Shop::at(url.clone());
        let [hanging, other] = [(); 2].map(|()| shop.database.serve());
        Self { url, shop, hanging, other }
    }

    fn animal(&self, name: &str) -> i64 {
        self.other.create_pet(&self.shop.key, name).json()["id"].as_i64().unwrap()
    }

    fn order_at_the_other(&self, pet: i64) -> thread::JoinHandle<Response> {
        let (address, key) = (self.other.store.clone(), self.shop.key.clone());
        thread::spawn(move || testkit::blocking::post(&address, "/v1/store/orders", &key, &order_of(pet)))
    }

    /// Runs `sql` in a transaction that stays open.
    fn hold(&self, sql: &str) -> Blocker {
        let (url, sql) = (self.url.clone(), format!("BEGIN; {sql}; SELECT pg_sleep(60); COMMIT"));
        let thread = thread::spawn({
            let url = url.clone();
            move || _ = try_query(&url, &sql)
        });
        within(TIMEOUT, "blocking", || query(&url, &format!("SELECT count(*) FROM {SLEEPING}")) == "1");
        Blocker { url, thread }
    }

    /// Stops a process in the middle of a batch with idempotency keys. Its write waits for the lock that `sql` takes,
    /// and PostgreSQL carries it out once the process is stopped. The process then does not commit, and its connection
    /// stays open.
    fn stop_in_keyed_batch(&self, sql: &str, path: &'static str, body: &str) -> Hung<'_> {
        let blocker = self.hold(sql);
        let (address, key, body) = (self.hanging.store.clone(), self.shop.key.clone(), body.to_owned());
        let request = thread::spawn(move || post_once(&address, path, &key, "hung", &body));
        within(TIMEOUT, "reaching the lock", || waiting(&self.url) == 1);
        self.hanging.suspend();
        blocker.release();
        // Otherwise the next write could take the lock before the one that waits for it.
        within(TIMEOUT, "hanging in the transaction", || query(&self.url, IDLE_IN_TRANSACTION) == "1");
        Hung { process: &self.hanging, request }
    }
}

/// A stopped process, and the client that waits for it.
struct Hung<'a> {
    process: &'a Server,
    request: thread::JoinHandle<Response>,
}

impl Hung<'_> {
    /// Continues the process. Its client gets a 503, because the outcome is unknown, or a 201.
    fn end(self) {
        self.process.signal(Signal::CONT);
        let answer = self.request.join().unwrap();
        assert!(matches!(answer.status, 201 | 503), "{answer:?}");
    }
}

/// A sleeping transaction of psql.
struct Blocker {
    url: String,
    thread: thread::JoinHandle<()>,
}

const IDLE_IN_TRANSACTION: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()";

const SLEEPING: &str = "pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

impl Blocker {
    fn release(self) {
        query(&self.url, &format!("SELECT pg_terminate_backend(pid) FROM {SLEEPING}"));
        self.thread.join().unwrap();
    }
}

/// Number of inserts of animals or orders that wait for a lock.
fn waiting(url: &str) -> u32 {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'INSERT INTO (pets|orders)'";
    query(url, waiting).parse().unwrap()
}

fn order_of(pet: i64) -> String {
    format!(r#"{{"petId":{pet}}}"#)
}
