//! Promise 44: a client that follows `after` receives every acknowledged animal and order exactly once.

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::blocking::{new_pet, read_response};
use testkit::postgres::query;
use testkit::{PostgresServer, SERVE, Server, TIMEOUT, trial, within};

use crate::shop::Shop;

/// Number of clients per process that create and order animals. Every second client uses idempotency keys.
const CREATORS: usize = 6;

/// Time between two faults.
const PAUSE: Duration = Duration::from_millis(700);

/// Pause between two requests of a follower, which leaves the processor to the creators.
const POLL: Duration = Duration::from_millis(5);

const PETS: &str = "/v1/pets";
const ORDERS: &str = "/v1/store/orders";

#[test]
fn followers_miss_nothing_across_three_processes() {
    let rounds = trial::rounds(1);
    let url = PostgresServer::shared().database();
    let shop = Shop::at(url.clone());
    let (steady, hung) = (shop.database.serve(), shop.database.serve());
    let traffic = Traffic::new(&shop.key);
    let (created, followed) = thread::scope(|scope| {
        let _ends = End(&traffic);
        let followers = traffic.follow_all(scope, &[&steady, &hung]);
        let mut creators = traffic.create(scope, &steady, "steady");
        creators.extend(traffic.create(scope, &hung, "hung"));
        for round in 1..=rounds {
            // Under full load a start may miss its own deadlines. Retried as a supervisor would.
            let start = || Server::try_start(shop.database.petstore(SERVE));
            let mut killed = std::iter::repeat_with(start).take(5).flatten().next().expect("a process that serves");
            creators.extend(traffic.create(scope, &killed, &format!("killed-{round}")));
            thread::sleep(PAUSE);
            hung.suspend();
            thread::sleep(PAUSE);
            killed.kill();
            thread::sleep(PAUSE);
            hung.signal(Signal::CONT);
            thread::sleep(PAUSE);
        }
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
        let _ends = End(&traffic);
        let followers = traffic.follow_all(scope, &[&service]);
        let creators = traffic.create(scope, &service, "only");
        thread::sleep(PAUSE * trial::rounds(2));
        traffic.end(creators, followers)
    });
    trial::measured(&followed.check(&created));
}

/// Control: a follower misses an id that is committed after a greater id became visible.
fn misses_an_id_that_is_visible_late(process: &Server, key: &str, url: &str) {
    let late = thread::spawn({
        let url = url.to_owned();
        move || {
            let insert = "INSERT INTO pets (name, category_id, status) VALUES ('late', 1, 0) RETURNING id";
            query(&url, &format!("BEGIN; {insert}; SELECT pg_sleep(1.5); COMMIT"))
        }
    });
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    within(TIMEOUT, "the late insert", || query(url, sleeping) == "1");
    let traffic = Traffic::new(key);
    let pet = process.create_pet(key, "early").json()["id"].as_i64().unwrap();
    let before = thread::scope(|scope| {
        let follower = scope.spawn(|| traffic.follow(&process.store, PETS, pet - 2));
        let late: i64 = late.join().unwrap().trim().parse().unwrap();
        assert!(late == pet - 1, "the late insert took {late}, after {pet}");
        traffic.ended.store(true, Ordering::SeqCst);
        (late, follower.join().unwrap())
    });
    let (late, seen) = before;
    assert!(seen.contains(&pet) && !seen.contains(&late), "the follower would not notice a late id");
}

/// Creators and followers of one account.
struct Traffic<'a> {
    key: &'a str,
    stop: AtomicBool,
    /// Set once every creator has received its last response.
    ended: AtomicBool,
}

/// Stops all clients on drop, because their scope waits for them even if the test has failed.
struct End<'a>(&'a Traffic<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.0.ended.store(true, Ordering::SeqCst);
    }
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
        Self { key, stop: AtomicBool::new(false), ended: AtomicBool::new(false) }
    }

    /// Starts a follower of animals and one of orders on each process.
    fn follow_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, processes: &[&Server]) -> Followers<'scope> {
        let follow = |process: &&Server| {
            let address = process.store.clone();
            [PETS, ORDERS].map(|path| {
                let address = address.clone();
                (path, scope.spawn(move || self.follow(&address, path, 0)))
            })
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
            let (address, name) = (process.store.clone(), format!("{name}-{number}"));
            scope.spawn(move || self.create_until_stopped(&address, &name, number % 2 == 0))
        };
        (0..CREATORS).map(creator).collect()
    }

    /// Stops the creators, then the followers once they have read everything.
    fn end(&self, creators: Creators<'_>, followers: Followers<'_>) -> (Ids, Followed) {
        self.stop.store(true, Ordering::SeqCst);
        let mut created = Ids::default();
        for creator in creators {
            let ids = creator.join().unwrap();
            created.pets.extend(ids.pets);
            created.orders.extend(ids.orders);
        }
        self.ended.store(true, Ordering::SeqCst);
        (created, Followed(followers.into_iter().map(|(path, follower)| (path, follower.join().unwrap())).collect()))
    }

    /// Creates and orders animals until stopped or until the process is gone. Returns the acknowledged ids.
    fn create_until_stopped(&self, address: &str, name: &str, keyed: bool) -> Ids {
        let mut acknowledged = Ids::default();
        let Some(mut client) = Client::connect(address, self.key) else { return acknowledged };
        for number in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let name = format!("{name}-{number}");
            let once = |of: &str| if keyed { format!("Idempotency-Key: {of}-{name}\r\n") } else { String::new() };
            let Some((status, pet)) = client.send("POST", PETS, &once("pet"), &new_pet(&name)) else { break };
            if status != 201 {
                assert!(matches!(status, 409 | 503), "{pet}");
                continue;
            }
            acknowledged.pets.push(pet["id"].as_i64().unwrap());
            let order = format!(r#"{{"petId":{}}}"#, pet["id"]);
            let Some((status, order)) = client.send("POST", ORDERS, &once("order"), &order) else { break };
            match status {
                201 => acknowledged.orders.push(order["id"].as_i64().unwrap()),
                _ => assert!(matches!(status, 409 | 503), "{order}"),
            }
        }
        acknowledged
    }

    /// Reads pages, beginning after `from`, until the creators have ended and a page is empty. Each page follows the
    /// last id received.
    fn follow(&self, address: &str, path: &str, from: i64) -> Vec<i64> {
        let mut client = Client::connect(address, self.key).unwrap();
        let mut seen = Vec::new();
        loop {
            let ended = self.ended.load(Ordering::SeqCst);
            let after = seen.last().copied().unwrap_or(from);
            let target = format!("{path}?limit=100&after={after}");
            let (status, page) = client.send("GET", &target, "", "").expect("an answer");
            if status != 200 {
                assert_eq!(status, 503, "{page}");
                continue;
            }
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

/// A connection to one process.
struct Client<'a> {
    stream: TcpStream,
    key: &'a str,
}

impl<'a> Client<'a> {
    fn connect(address: &str, key: &'a str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Some(Self { stream, key })
    }

    /// Sends a request and returns the response's status and body. `None` if the process is gone.
    fn send(&mut self, method: &str, target: &str, header: &str, body: &str) -> Option<(u16, Value)> {
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{header}Content-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).ok()?;
        let (status, body) = read_response(&mut self.stream)?;
        Some((status, serde_json::from_str(&body).unwrap()))
    }
}
