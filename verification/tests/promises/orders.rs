//! Promise 1 for orders: a crash loses no acknowledged order, and every animal has the status that its orders imply.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::postgres::sessions;
use testkit::{Connection, Database, PostgresServer, Random, Request, TIMEOUT, trial, within};
use verification::writers::is_late;

const CLIENTS: u64 = 32;
const ANIMALS: u64 = 1_000;

/// Responses in a round, at least.
const ENOUGH: u64 = 200;

/// The statuses of orders as the databases store them.
pub const PLACED: i64 = 0;
pub const APPROVED: i64 = 1;
pub const DELIVERED: i64 = 2;
pub const CANCELLED: i64 = 3;

/// An order as its client knows it.
pub struct Entry {
    pub id: i64,
    pub pet: i64,
    /// The last acknowledged status.
    pub status: i64,
    /// The status requested when the connection broke. The order may have reached it.
    pub requested: Option<i64>,
}

#[test]
fn orders_and_animals_agree_after_kill_9() {
    let database = Database::temporary();
    crash(&database, || {});
    assert_eq!(database.sql("PRAGMA integrity_check"), "ok");
}

#[test]
fn orders_and_animals_agree_after_kill_9_on_postgresql() {
    let url = PostgresServer::shared().database();
    // PostgreSQL may execute statements of a killed process until its sessions end.
    let is_idle = || sessions(&url, "application_name = 'petstore'") == 0;
    crash(&Database::url(&url), || _ = within(TIMEOUT, "ending the sessions", is_idle));
}

/// Kills the service under load in each round. `settle` waits until the database receives no more writes of a killed
/// process.
fn crash(database: &Database, settle: impl Fn()) {
    let (rounds, mut random) = (trial::rounds(8), Random::from_seed());
    let key = database.make_key();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "{\"name\":\"Rex\",\"categoryId\":1}\n".repeat(ANIMALS as usize)).unwrap();
    database.run(&format!("pets import {}", file.path().display()));

    let mut ledgers: Vec<Vec<Entry>> = (0..CLIENTS).map(|_| Vec::new()).collect();
    let (mut refused, answered) = (0, Arc::<AtomicU64>::default());
    // In each kill, every client may have placed one order without a response.
    let unknown = |kills: u32| kills as usize * CLIENTS as usize;
    for round in trial::counted(rounds) {
        let mut service = database.serve();
        let clients: Vec<_> = ledgers
            .drain(..)
            .map(|mut ledger| {
                let (key, address, mut random) = (key.clone(), service.store(), random.another());
                let answered = Arc::clone(&answered);
                thread::spawn(move || {
                    let refused = order_until_killed(address, &key, &mut random, &mut ledger, &answered);
                    (ledger, refused)
                })
            })
            .collect();
        random.sleep(100..500);
        within(TIMEOUT, "orders", || answered.load(Ordering::Relaxed) >= ENOUGH * u64::from(round));
        service.kill();
        for client in clients {
            let (ledger, others) = client.join().unwrap();
            ledgers.push(ledger);
            refused += others;
        }
        settle();
        let violations = violations(&ledgers, database, unknown(round));
        assert!(violations.is_empty(), "round {round}: {violations:#?}");
    }
    let count = |status| ledgers.iter().flatten().filter(|entry| entry.status == status).count();
    let counts = [PLACED, APPROVED, DELIVERED, CANCELLED].map(count);
    assert!(
        counts.iter().sum::<usize>() > 100 && counts.iter().all(|count| *count > 0),
        "little was tested: {counts:?}"
    );
    assert!(refused > 0, "no two clients ordered the same animal");

    // Controls: an animal that is freed and an order that is deleted without the ledger are noticed.
    let open = "(SELECT max(id) FROM orders WHERE status IN (0, 1))";
    database.sql(&format!("UPDATE pets SET status = 0 WHERE id = (SELECT pet_id FROM orders WHERE id = {open})"));
    assert_eq!(violations(&ledgers, database, unknown(rounds)).len(), 1);
    let lost = ledgers.iter().flatten().find(|entry| entry.status == CANCELLED).expect("some order was cancelled").id;
    database.sql(&format!("DELETE FROM orders WHERE id = {lost}"));
    assert_eq!(violations(&ledgers, database, unknown(rounds)).len(), 2);
    let [placed, approved, delivered, cancelled] = counts;
    trial::measured(&format!(
        "{rounds} rounds; acknowledged and last seen placed {placed}, approved {approved}, delivered {delivered}, \
         cancelled {cancelled}, all of them there; {refused} refused; every animal as its orders say"
    ));
}

/// Orders animals and changes the orders' statuses until the service is gone. Returns the number of rejected requests.
/// Counts the responses in `answered`.
fn order_until_killed(
    address: SocketAddr,
    key: &str,
    random: &mut Random,
    ledger: &mut Vec<Entry>,
    answered: &AtomicU64,
) -> u64 {
    let mut refused = 0;
    let Ok(mut connection) = Connection::open(address) else { return refused };
    let mut post = |path: &str, body: &str| {
        let request = Request::new(address, "POST", &format!("/v1/store/orders{path}")).key(key).json(body);
        let response = connection.send(&request).ok();
        answered.fetch_add(1, Ordering::Relaxed);
        response
    };
    loop {
        let open = ledger.iter_mut().rfind(|entry| entry.requested.is_none() && entry.status < DELIVERED);
        match open {
            Some(entry) if random.below(2) == 0 => {
                let (step, to) = match (entry.status, random.below(8)) {
                    (_, 0..3) => ("cancel", CANCELLED),
                    (PLACED, _) => ("approve", APPROVED),
                    _ => ("deliver", DELIVERED),
                };
                entry.requested = Some(to);
                let Some(response) = post(&format!("/{}/{step}", entry.id), "") else { return refused };
                if is_late(&response) {
                    continue;
                }
                assert_eq!(response.status(), 200, "{response:?}");
                entry.status = to;
                entry.requested = None;
            }
            _ => {
                // A quarter of the orders compete for a few animals.
                let among = if random.below(4) == 0 { 8 } else { ANIMALS };
                let pet = (random.below(among) + 1) as i64;
                let Some(response) = post("", &format!(r#"{{"petId":{pet}}}"#)) else { return refused };
                match response.status() {
                    201 => ledger.push(Entry { id: response.id(), pet, status: PLACED, requested: None }),
                    409 => refused += 1,
                    _ if is_late(&response) => return refused,
                    _ => panic!("{response:?}"),
                }
            }
        }
    }
}

/// Describes each difference between the ledgers and the database. It may have up to `unknown` orders without a response.
pub fn violations(ledgers: &[Vec<Entry>], database: &Database, unknown: usize) -> Vec<String> {
    let mut violations = Vec::new();
    let stored = rows(database, "SELECT id, pet_id, status FROM orders");
    let orders: HashMap<_, _> = stored.iter().map(|row| (row[0], (row[1], row[2]))).collect();
    for Entry { id, pet, status, requested } in ledgers.iter().flatten() {
        let allowed = [Some(*status), *requested];
        match orders.get(id) {
            Some((of, is)) if of == pet && allowed.contains(&Some(*is)) => {}
            found => violations.push(format!("order {id} of animal {pet} is {found:?} and not {allowed:?}")),
        }
    }
    let acknowledged = ledgers.iter().flatten().count();
    if orders.len() > acknowledged + unknown {
        violations.push(format!("{} orders, of which {acknowledged} were acknowledged", orders.len()));
    }
    let mut of_pets: HashMap<i64, Vec<i64>> = HashMap::new();
    for row in stored.iter().filter(|row| row[2] != CANCELLED) {
        of_pets.entry(row[1]).or_default().push(row[2]);
    }
    for row in rows(database, "SELECT id, status FROM pets") {
        let (pet, is) = (row[0], row[1]);
        let open = of_pets.get(&pet).map_or(&[][..], Vec::as_slice);
        let should = match open {
            [] => 0,
            [PLACED | APPROVED] => 1,
            [DELIVERED] => 2,
            _ => -1,
        };
        if is != should {
            violations.push(format!("animal {pet} is {is}, with the orders {open:?}"));
        }
    }
    violations
}

fn rows(database: &Database, sql: &str) -> Vec<Vec<i64>> {
    let row = |line: &str| line.split('|').map(|column| column.parse().unwrap()).collect();
    database.sql(sql).lines().map(row).collect()
}
