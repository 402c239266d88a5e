//! Promise 45: a process that hangs in the middle of a batch on PostgreSQL delays other processes for a bounded time.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::postgres::{OpenTransaction, query, sessions};
use testkit::{Database, PostgresServer, Request, Response, Server, Shop, Signal, TIMEOUT, new_pet, trial, within};

/// Maximum time of a request beside a hung process. PostgreSQL ends the hung transaction after half a second, in a short run
/// after 17 s.
const BOUND: Duration = Duration::from_secs(1);

const LOCK_PETS: &str = "SELECT pg_advisory_xact_lock('pets'::regclass::int, 0)";
const ORDERS: &str = "/v1/store/orders";

#[test]
fn hung_batch_of_orders_delays_others_within_the_bound() {
    others_are_delayed_within_the_bound("orders", |cluster| {
        let [contested, free] =
            ["contested", "free"].map(|name| cluster.other.create_pet(&cluster.shop.key, name).id());
        let lock = format!("SELECT id FROM pets WHERE id = {contested} FOR UPDATE");
        let hung = cluster.suspend_in_batch(&lock, ORDERS, order_of(contested));
        // The second order may have to wait for the batch of the first.
        let first = cluster.order_in_background(contested);
        thread::sleep(Duration::from_millis(50));
        let second = cluster.order_in_background(free);
        (vec![first.join().unwrap(), second.join().unwrap()], hung)
    });
}

#[test]
fn hung_batch_of_animals_delays_others_within_the_bound() {
    others_are_delayed_within_the_bound("animals", |cluster| {
        let hung = cluster.suspend_in_batch(LOCK_PETS, "/v1/pets", new_pet("hung"));
        (vec![cluster.other.create_pet(&cluster.shop.key, "other")], hung)
    });
}

/// In each round, `test` suspends a process in a batch and returns the responses of the other process.
fn others_are_delayed_within_the_bound(of: &str, test: impl Fn(&Cluster) -> (Vec<Response>, JoinHandle<Response>)) {
    let rounds = trial::rounds(1);
    let mut slowest = Duration::ZERO;
    for _ in trial::counted(rounds) {
        let cluster = Cluster::new(|database| database);
        let (responses, hung) = test(&cluster);
        for response in responses {
            assert_eq!(response.status(), 201, "{response:?}");
            slowest = slowest.max(response.took);
        }
        // The client of the hung process gets a 503, because the outcome is unknown, or a 201.
        cluster.hanging.signal(Signal::CONT);
        let response = hung.join().unwrap();
        assert!(matches!(response.status(), 201 | 503), "{response:?}");
    }
    trial::judge("a request beside a hung process", slowest, BOUND);
    trial::measured(&format!("{rounds} processes stopped within a batch of {of}: others took {slowest:?} at most"));
}

#[test]
fn abandoned_writes_do_not_wait_on_in_the_server() {
    let cluster = Cluster::new(Database::with_default_timeout);
    let lock = OpenTransaction::begin(&cluster.url, LOCK_PETS);
    for _ in 0..2 {
        cluster.other.create_pet(&cluster.shop.key, "refused").assert_unavailable();
    }
    within(Duration::from_secs(2), "giving up", || cluster.waiting() == 0);
    lock.release();
    assert_eq!(cluster.other.pet_request(&cluster.shop.key, "accepted").send_until_available().status(), 201);
    assert_eq!(query(&cluster.url, "SELECT DISTINCT name FROM pets"), "accepted");
}

/// Two processes on a PostgreSQL database.
struct Cluster {
    url: String,
    shop: Shop,
    hanging: Server,
    other: Server,
}

impl Cluster {
    fn new(limit: impl FnOnce(Database) -> Database) -> Self {
        let url = PostgresServer::shared().database();
        let shop = Shop::on(limit(Database::url(&url)));
        let [hanging, other] = [(); 2].map(|()| shop.database.serve());
        Self { url, shop, hanging, other }
    }

    fn order_in_background(&self, pet: i64) -> JoinHandle<Response> {
        let request = Request::new(self.other.store(), "POST", ORDERS).key(&self.shop.key).json(order_of(pet));
        thread::spawn(move || request.send_blocking())
    }

    /// Suspends a process in the middle of a batch. Its write waits for the lock that `sql` takes, and PostgreSQL
    /// executes it once the process is suspended. The process then does not commit, and its connection stays open.
    fn suspend_in_batch(&self, sql: &str, path: &str, body: String) -> JoinHandle<Response> {
        let lock = OpenTransaction::begin(&self.url, sql);
        let request = Request::new(self.hanging.store(), "POST", path).key(&self.shop.key).json(body);
        let request = request.header("idempotency-key", "hung");
        let response = thread::spawn(move || request.send_blocking());
        within(TIMEOUT, "reaching the lock", || self.waiting() == 1);
        self.hanging.suspend();
        lock.release();
        // Otherwise the next write could take the lock before the one that waits for it.
        within(TIMEOUT, "hanging in the transaction", || sessions(&self.url, "state = 'idle in transaction'") == 1);
        response
    }

    /// Number of inserts of animals or orders that wait for a lock.
    fn waiting(&self) -> usize {
        sessions(&self.url, "wait_event_type = 'Lock' AND query ~ 'INSERT INTO (pets|orders)'")
    }
}

fn order_of(pet: i64) -> String {
    format!(r#"{{"petId":{pet}}}"#)
}
