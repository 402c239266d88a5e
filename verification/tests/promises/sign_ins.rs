//! Promise 25: a flood of sign-ins uses a bounded share of the machine.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::console::form;
use testkit::trial::{self, is_full, rounds};
use testkit::{Connection, Shop, TIMEOUT};
use verification::Load;
use verification::load::percentile;

const AT_ONCE: usize = 200;

/// More attempts than a client makes in a round, so that each round uses new addresses.
const TURNS: u32 = 100;

#[test]
fn two_hundred_concurrent_sign_ins_are_contained() {
    let Shop { database, key } = Shop::on_sqlite();
    // Each attempt has its own network address, so that only the bound on hashing applies.
    let service = database.serve_with("--trusted-proxy 127.0.0.1");
    let closed_loop = Load::new(service.store(), &key, 64, Duration::from_secs(2));
    let (mut rate, mut time) = (100.0, 2);
    if is_full() {
        closed_loop.run();
        // The API is loaded with half of the rate that the same clients keep up.
        (rate, time) = (closed_loop.most_kept_up(closed_loop.run().goodput() * 1.2) / 2.0, 4);
    }
    let others = Load { rate: Some(rate), time: Duration::from_secs(time), ..closed_loop };
    let memory = service.memory();

    let (mut grown, mut statuses, mut accepted, mut missed) = (0, Vec::new(), 0, 0);
    // The speed of a machine varies, so each round compares two adjacent runs, and the median of the rounds counts.
    let mut trials: Vec<_> = (0..rounds(1))
        .map(|round| {
            let alone = others.run();
            let running = others.start();
            let flood = flood(service.store(), round, Instant::now() + others.time);
            while !running.is_finished() {
                grown = grown.max(service.memory().saturating_sub(memory));
                thread::sleep(Duration::from_millis(20));
            }
            let beside = running.join().unwrap();
            statuses.extend(flood.into_iter().flat_map(|client| client.join().unwrap()));
            assert_eq!((beside.failed.len(), beside.refused.len()), (0, 0), "{:?}", beside.failed.first());
            accepted += beside.accepted.len() as u64;
            missed += beside.missed;
            let (before, after) = (percentile(&alone.accepted, 99), percentile(&beside.accepted, 99));
            println!("p99 {before:?} became {after:?}; {} and {} missed", alone.missed, beside.missed);
            (after.as_secs_f64() / before.as_secs_f64(), before, after)
        })
        .collect();

    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    let (hashed, refused) = (count(422), count(503));
    assert_eq!(hashed + refused, statuses.len(), "{statuses:?}");
    assert!(hashed > 0 && refused > 0, "{hashed} hashed, {refused} refused");
    assert_eq!(service.logged("request refused")["cause"], "the password queue is full");
    // A hash takes 19 MiB, with one at a time for every two cores, up to four. The rest is for 200 connections.
    let at_once = (thread::available_parallelism().unwrap().get() as u64 / 2).clamp(1, 4);
    assert!(grown < (at_once * 19 + 16) << 20, "{grown} bytes more");
    trials.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (least, (median, before, after), most) = (trials[0].0, trials[trials.len() / 2], trials[trials.len() - 1].0);
    trial::measured(&format!(
        "{} sign-ins by {AT_ONCE} at once: {hashed} hashed, {refused} refused, {} MiB more; p99 of {rate:.0} lists a \
         second {median:.2} times as long, {before:?} without and {after:?} with them (median of {} rounds, {least:.2} \
         to {most:.2} times; {missed} missed because a response was late)",
        statuses.len(),
        grown >> 20,
        trials.len()
    ));
    if is_full() {
        assert!(median <= 2.0, "p99 {before:?} became {after:?}");
        // Missed requests are in no percentile.
        assert!(missed <= accepted / 100, "{missed} missed, {accepted} accepted");
    }
}

/// Starts clients that first sign in all at once, and then retry as told until `end`. Returns the statuses.
fn flood(address: SocketAddr, round: u32, end: Instant) -> Vec<JoinHandle<Vec<u16>>> {
    let together = Arc::new(Barrier::new(AT_ONCE));
    let client = |client: usize| {
        let together = Arc::clone(&together);
        move || {
            together.wait();
            let mut statuses = vec![sign_in(address, client, round * TURNS).0];
            // Spreads the clients: 200 threads of the test that wake at the same moment would distort the measurement.
            thread::sleep(Duration::from_secs(1) * client as u32 / AT_ONCE as u32);
            for turn in round * TURNS + 1.. {
                if Instant::now() >= end {
                    break;
                }
                let (status, pause) = sign_in(address, client, turn);
                statuses.push(status);
                thread::sleep(pause);
            }
            statuses
        }
    };
    (0..AT_ONCE).map(|number| thread::spawn(client(number))).collect()
}

/// Tries to sign in to another account with a wrong password. Returns the status and the time until the next attempt.
fn sign_in(address: SocketAddr, client: usize, turn: u32) -> (u16, Duration) {
    let email = format!("{client}.{turn}@example.com");
    let request = form(address, "/sign-in", &[("email", &email), ("password", "wrong horse battery")]);
    let network = format!("10.{}.{}.{client}", turn / 250 % 250, turn % 250);
    let request = request.header("x-forwarded-for", &network);
    // It waits for at most 32 hashes, whose threads get only a tenth of a busy core.
    let response = Connection::open(address).unwrap().patient(10 * TIMEOUT).send(&request).unwrap();
    (response.status(), response.retry_after().unwrap_or(Duration::from_millis(100)))
}
