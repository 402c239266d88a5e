//! Promise 37: the API is linearizable. One order of the operations explains everything that concurrent clients observe of
//! an animal, its orders and idempotency keys, over all processes and through crashes. Other processes accept a revoked API
//! key for at most a second.

use std::net::SocketAddr;
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{query, sessions};
use testkit::{Connection, Database, PostgresServer, Random, Request, Server, TIMEOUT, trial, within};
use verification::PostgresPair;

use crate::animal_clients::{Client, Run, Subject};
use crate::animal_model::{Animal, ApiKey, KeyOperation, Operation};
use crate::linearizability::{Event, UNKNOWN, is_linearizable};

/// Clients and animals in a round. An animal gets about twenty operations.
const CLIENTS: usize = 8;
const ANIMALS: usize = 16;

/// Number of rounds from one crash to the next.
const CRASH_EVERY: u32 = 20;

/// Number of rounds from one fail-over to the next, which takes seconds.
const FAIL_OVER_EVERY: u32 = 100;

/// Maximum time until other processes notice that a key is revoked. Short runs wait until they have noticed it.
const REVOCATION: Duration = Duration::from_secs(1);

#[test]
fn embedded_database_is_linearizable_in_one_process() {
    check(&Database::temporary(), 1, CRASH_EVERY, || ());
}

#[test]
fn embedded_database_is_linearizable_in_two_processes() {
    check(&Database::temporary(), 2, CRASH_EVERY, || ());
}

#[test]
fn embedded_database_is_linearizable_in_three_processes() {
    check(&Database::temporary(), 3, CRASH_EVERY, || ());
}

#[test]
fn postgresql_is_linearizable_in_three_processes() {
    let url = PostgresServer::shared().database();
    let sessions_of_petstore = "datname = current_database() AND application_name = 'petstore'";
    let terminate = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {sessions_of_petstore}");
    check(&Database::url(&url), 3, CRASH_EVERY, || {
        assert!(sessions(&url, sessions_of_petstore) > 0);
        query(&url, &terminate);
    });
}

#[test]
fn postgresql_is_linearizable_through_fail_overs() {
    let pair = PostgresPair::start();
    let database = Database::url(pair.url());
    let pair = Mutex::new(pair);
    check(&database, 3, FAIL_OVER_EVERY, || pair.lock().unwrap().fail_over());
}

/// Runs rounds of clients and checks the history of each animal. Some rounds have crashes: of a process by SIGKILL, and
/// of the database or its sessions by `crash`.
fn check(database: &Database, processes: usize, crash_every: u32, crash: impl Fn() + Sync) {
    let rounds = trial::rounds(6);
    let mut random = Random::from_seed();
    let staff = database.make_key();
    let [one, other] = ["one@example.com", "other@example.com"].map(|email| database.customer(email));
    let mut servers: Vec<_> = (0..processes).map(|_| database.serve()).collect();
    let run = Run { began: Instant::now(), keys: [staff, one, other], addresses: RwLock::default() };
    let (mut operations, mut unknown, mut crashes, mut caught) = (0, 0, 0, 0);
    for round in trial::counted(rounds) {
        *run.addresses.write().unwrap() = servers.iter().map(Server::store).collect();
        let animals: Vec<_> = (0..ANIMALS).map(|number| Subject::new(format!("{round}-{number}"))).collect();
        // The last round also has a crash, so that a short run has one.
        let is_crash = round % crash_every == 0 || round == rounds;
        let killed = is_crash.then(|| random.index(processes));
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (mut random, run, animals) = (random.another(), &run, &animals);
                scope.spawn(move || Client::new(run).work(animals, &mut random));
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
        within(TIMEOUT, "readiness of all", || servers.iter().all(|server| server.get("/readyz", "").status() == 200));
        for animal in animals {
            let history = animal.history();
            operations += history.len();
            unknown += history.iter().filter(|event| event.answered == UNKNOWN).count();
            assert!(is_linearizable::<Animal>(&history), "{history:#?}");
            caught += u32::from(stale_read_is_caught(history));
        }
    }
    assert!(caught > 0, "no history had a read to falsify");
    let keys = rounds.div_ceil(crash_every);
    let uses: usize = (0..keys).map(|number| revoke_a_key(database, &run, number)).sum();
    trial::measured(&format!(
        "{processes} processes: {operations} operations, {unknown} of them with an unknown outcome, in {crashes} crashes, and \
         {uses} uses of {keys} revoked keys: 0 violations; a false read in each of {caught} histories is caught"
    ));
}

/// Control: falsifies a read that no other operation overlaps, and checks that this is a violation. Returns false if there is
/// no such read.
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

/// Uses a key in all processes while it is revoked. Checks each process alone. Returns the number of uses.
fn revoke_a_key(database: &Database, run: &Run, number: u32) -> usize {
    let key = &database.key_of(&format!("owner-{number}@example.com"));
    let id = database.sql("SELECT max(id) FROM api_keys");
    let addresses = run.addresses.read().unwrap().clone();
    let (histories, revoked) = thread::scope(|scope| {
        let users: Vec<_> = addresses.iter().map(|&address| scope.spawn(move || use_key(run, address, key))).collect();
        thread::sleep(PAUSE * USES / 4);
        let sent = run.now();
        database.run(&format!("key revoke {id}"));
        if !trial::is_full() {
            let is_rejected = |address: &SocketAddr| {
                Request::new(*address, "GET", "/v1/pets?limit=1").key(key).send_blocking().status() == 401
            };
            within(TIMEOUT, "rejecting the key", || addresses.iter().all(is_rejected));
        }
        let answered = run.now() + if trial::is_full() { REVOCATION.as_nanos() as u64 } else { 0 };
        let revoked = Event { sent, answered, operation: KeyOperation::Revoke };
        (users.into_iter().map(|user| user.join().unwrap()).collect::<Vec<_>>(), revoked)
    });
    let mut uses = 0;
    for mut history in histories {
        uses += history.len();
        history.push(revoked.clone());
        assert!(is_linearizable::<ApiKey>(&history), "a revoked key is accepted, or a valid one is not: {history:#?}");
    }
    uses
}

fn use_key(run: &Run, address: SocketAddr, key: &str) -> Vec<Event<KeyOperation>> {
    let mut connection = Connection::open(address).unwrap();
    let request = Request::new(address, "GET", "/v1/pets?limit=1").key(key);
    let uses = (0..USES).map(|_| {
        thread::sleep(PAUSE);
        let sent = run.now();
        let status = connection.send(&request).unwrap().status();
        assert!(matches!(status, 200 | 401), "{status}");
        Event { sent, answered: run.now(), operation: KeyOperation::Use { accepted: status == 200 } }
    });
    uses.collect()
}

/// Uses of a revoked key per process, and the pause before each.
const USES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);
