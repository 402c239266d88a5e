//! Promise 44: a client that follows `after` receives every acknowledged animal and order exactly once.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use testkit::postgres::{OpenTransaction, query, sessions};
use testkit::{
    Connection, Database, PostgresServer, Request, Server, Shop, Signal, Stop, StopOnDrop, TIMEOUT, new_pet, trial,
    within,
};

/// Clients per process that create and order animals. Every second client uses idempotency keys.
const CREATORS: usize = 6;

/// Time between two faults.
const PAUSE: Duration = Duration::from_millis(700);

/// Pause between two requests of a follower, which leaves the processor to the creators.
const POLL: Duration = Duration::from_millis(5);

/// More than the 100 that are asserted, because some have no response yet.
const ENOUGH: &str = "SELECT CAST((SELECT count(*) FROM pets) > 120 AND (SELECT count(*) FROM orders) > 120 AS int)";

const PETS: &str = "/v1/pets";
const ORDERS: &str = "/v1/store/orders";

#[test]
fn followers_miss_nothing_across_three_processes() {
    let rounds = trial::rounds(1);
    let url = PostgresServer::shared().database();
    let shop = Shop::on(Database::url(&url));
    let (steady, hung) = (shop.database.serve(), shop.database.serve());
    let traffic = Traffic::new(&shop.key);
    let (created, followed) = thread::scope(|scope| {
        let _stop = traffic.stop_on_drop();
        let followers = traffic.follow_all(scope, &[&steady, &hung]);
        let mut creators = traffic.create(scope, &steady, "steady");
        creators.extend(traffic.create(scope, &hung, "hung"));
        for round in trial::counted(rounds) {
            let mut killed = shop.database.serve_supervised("");
            creators.extend(traffic.create(scope, &killed, &format!("killed-{round}")));
            thread::sleep(PAUSE);
            hung.suspend();
            thread::sleep(PAUSE);
            killed.kill();
            thread::sleep(PAUSE);
            hung.signal(Signal::CONT);
            thread::sleep(PAUSE);
        }
        within(TIMEOUT, "animals and orders", || shop.database.sql(ENOUGH) == "1");
        traffic.end(creators, followers)
    });
    let measured = followed.check(&created);
    assert!(created.pets.len() > 100 && created.orders.len() > 100, "little was tested: {measured}");
    misses_an_id_that_is_visible_late(&steady, &shop.key, &url);
    trial::measured(&format!("{rounds} processes killed, {rounds} stopped and continued: {measured}"));
}

#[test]
fn followers_miss_nothing_in_the_embedded_database() {
    let shop = Shop::on_sqlite();
    let service = shop.database.serve();
    let traffic = Traffic::new(&shop.key);
    let (created, followed) = thread::scope(|scope| {
        let _stop = traffic.stop_on_drop();
        let followers = traffic.follow_all(scope, &[&service]);
        let creators = traffic.create(scope, &service, "only");
        thread::sleep(PAUSE * trial::rounds(2));
        within(TIMEOUT, "animals and orders", || shop.database.sql(ENOUGH) == "1");
        traffic.end(creators, followers)
    });
    let measured = followed.check(&created);
    assert!(created.pets.len() > 100 && created.orders.len() > 100, "little was tested: {measured}");
    trial::measured(&measured);
}

/// Control: a follower misses an id that is committed after a greater id became visible.
fn misses_an_id_that_is_visible_late(process: &Server, key: &str, url: &str) {
    let commit = OpenTransaction::begin(url, "SELECT pg_advisory_xact_lock(44)");
    let late = thread::spawn({
        let url = url.to_owned();
        move || {
            let insert = "INSERT INTO pets (name, category_id, status) VALUES ('late', 1, 0) RETURNING id";
            query(&url, &format!("BEGIN; {insert}; SELECT pg_advisory_xact_lock(44); COMMIT"))
        }
    });
    within(TIMEOUT, "the late insert", || sessions(url, "wait_event = 'advisory'") == 1);
    let traffic = Traffic::new(key);
    let pet = process.create_pet(key, "early").id();
    traffic.ended.request();
    let mut seen = traffic.follow(process.store(), PETS, pet - 2);
    commit.release();
    let late: i64 = late.join().unwrap().trim().parse().unwrap();
    assert!(late == pet - 1, "the late insert took {late}, after {pet}");
    seen.extend(traffic.follow(process.store(), PETS, pet));
    assert!(seen.contains(&pet) && !seen.contains(&late), "the follower would not notice a late id");
}

/// Creators and followers of one account.
struct Traffic<'a> {
    key: &'a str,
    stop: Stop,
    /// Set once every creator has received its last response.
    ended: Stop,
}

/// Ids in the order of their responses.
#[derive(Default)]
struct Ids {
    pets: Vec<i64>,
    orders: Vec<i64>,
}

/// Path of each follower, and the ids that it received.
struct Followed(Vec<(&'static str, Vec<i64>)>);

type Creators<'scope> = Vec<ScopedJoinHandle<'scope, Ids>>;
type Followers<'scope> = Vec<(&'static str, ScopedJoinHandle<'scope, Vec<i64>>)>;

impl<'a> Traffic<'a> {
    const fn new(key: &'a str) -> Self {
        Self { key, stop: Stop::new(), ended: Stop::new() }
    }

    /// Stops all clients on drop.
    const fn stop_on_drop(&self) -> [StopOnDrop<'_>; 2] {
        [self.stop.on_drop(), self.ended.on_drop()]
    }

    /// Starts a follower of animals and one of orders on each process.
    fn follow_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, processes: &[&Server]) -> Followers<'scope> {
        let follow = |process: &&Server| {
            let address = process.store();
            [PETS, ORDERS].map(|path| (path, scope.spawn(move || self.follow(address, path, 0))))
        };
        processes.iter().flat_map(follow).collect()
    }

    fn create<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        process: &Server,
        name: &str,
    ) -> Creators<'scope> {
        let creator = |number| {
            let (address, name) = (process.store(), format!("{name}-{number}"));
            scope.spawn(move || self.create_until_stopped(address, &name, number % 2 == 0))
        };
        (0..CREATORS).map(creator).collect()
    }

    /// Stops the creators, then the followers once they have read everything.
    fn end(&self, creators: Creators<'_>, followers: Followers<'_>) -> (Ids, Followed) {
        self.stop.request();
        let mut created = Ids::default();
        for creator in creators {
            let ids = creator.join().unwrap();
            created.pets.extend(ids.pets);
            created.orders.extend(ids.orders);
        }
        self.ended.request();
        (created, Followed(followers.into_iter().map(|(path, follower)| (path, follower.join().unwrap())).collect()))
    }

    /// Creates and orders animals until stopped or until the process is gone. Returns the acknowledged ids.
    fn create_until_stopped(&self, address: SocketAddr, name: &str, keyed: bool) -> Ids {
        let mut acknowledged = Ids::default();
        let Ok(mut connection) = Connection::open(address) else { return acknowledged };
        // Returns `None` if the process is gone, and `Some(None)` if it rejects the request.
        let mut create = |path: &str, key: &str, body: String| {
            let mut request = Request::new(address, "POST", path).key(self.key).json(body);
            if keyed {
                request = request.header("idempotency-key", key);
            }
            let response = connection.send(&request).ok()?;
            assert!(matches!(response.status(), 201 | 409 | 503), "{response:?}");
            Some((response.status() == 201).then(|| response.id()))
        };
        for number in 0.. {
            if self.stop.is_requested() {
                break;
            }
            let Some(pet) = create(PETS, &format!("pet-{name}-{number}"), new_pet(name)) else { break };
            let Some(pet) = pet else { continue };
            acknowledged.pets.push(pet);
            let order = create(ORDERS, &format!("order-{name}-{number}"), format!(r#"{{"petId":{pet}}}"#));
            let Some(order) = order else { break };
            acknowledged.orders.extend(order);
        }
        acknowledged
    }

    /// Reads pages, beginning after `from`, until the creators have ended and a page is empty. Each page follows the
    /// last id received.
    fn follow(&self, address: SocketAddr, path: &str, from: i64) -> Vec<i64> {
        let mut connection = Connection::open(address).unwrap();
        let mut seen = Vec::new();
        loop {
            let ended = self.ended.is_requested();
            let after = seen.last().copied().unwrap_or(from);
            let request = Request::new(address, "GET", &format!("{path}?limit=100&after={after}")).key(self.key);
            let response = connection.send(&request).unwrap();
            if response.status() != 200 {
                assert_eq!(response.status(), 503, "{response:?}");
                continue;
            }
            let page = response.json();
            let page = page.as_array().unwrap();
            if ended && page.is_empty() {
                return seen;
            }
            seen.extend(page.iter().map(|item| item["id"].as_i64().unwrap()));
            thread::sleep(POLL);
        }
    }
}

impl Followed {
    /// Fails if a follower missed an acknowledged id, or received ids twice or out of order. Returns the counts as text.
    fn check(&self, created: &Ids) -> String {
        let wrong = self.0.iter().filter_map(|(path, seen)| {
            let acknowledged = if *path == PETS { &created.pets } else { &created.orders };
            let set: HashSet<_> = seen.iter().collect();
            let missed = acknowledged.iter().filter(|id| !set.contains(id)).count();
            let twice = seen.len() - set.len();
            (missed + twice > 0 || !seen.is_sorted())
                .then(|| format!("{path}: missed {missed} of {}, received {twice} twice", acknowledged.len()))
        });
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        format!(
            "{} followers, each received all of {} acknowledged animals or {} orders once",
            self.0.len(),
            created.pets.len(),
            created.orders.len()
        )
    }
}
