//! Promise 25: a flood of sign-ins takes its share of the machine and no more.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::load::{percentile, retry_after};
use testkit::trial::{self, is_full, rounds};
use testkit::{Database, Load, SERVE, Server};

const AT_ONCE: usize = 200;

/// More than anybody gets in a round: those of the next are of others.
const TURNS: u32 = 100;

#[test]
fn two_hundred_concurrent_sign_ins_are_contained() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    // Each comes from an address of its own, so that only the bound on hashing holds them.
    let service = Server::start(database.petstore(&format!("{SERVE} --trusted-proxy 127.0.0.1")));
    let as_fast_as_answered = Load {
        address: service.store.clone(),
        clients: 64,
        request: Load::lists,
        key,
        time: Duration::from_secs(2),
        rate: None,
        obeys: false,
    };
    as_fast_as_answered.run();
    // Loaded is half of what the same clients can ask for.
    let most = || as_fast_as_answered.most_kept_up(as_fast_as_answered.run().goodput() * 1.2);
    let rate = if is_full() { most() / 2.0 } else { 100.0 };
    let others = Load { rate: Some(rate), time: Duration::from_secs(4), ..as_fast_as_answered };
    let memory = service.memory();

    let (mut grown, mut statuses, mut asked, mut missed) = (0, Vec::new(), 0, 0);
    // A machine has good and bad moments: what is compared is next to each other, and the median counts.
    let mut trials: Vec<_> = (0..rounds(1))
        .map(|round| {
            let alone = others.run();
            let running = others.start();
            let flood = flood(&service.store, round, Instant::now() + others.time);
            while !running.is_finished() {
                grown = grown.max(service.memory().saturating_sub(memory));
                thread::sleep(Duration::from_millis(20));
            }
            let beside = running.join().unwrap();
            statuses.extend(flood.into_iter().flat_map(|client| client.join().unwrap()));
            assert_eq!((beside.failed.len(), beside.refused.len()), (0, 0), "{:?}", beside.failed.first());
            asked += beside.accepted.len() as u64;
            missed += beside.missed;
            let (before, after) = (percentile(&alone.accepted, 99), percentile(&beside.accepted, 99));
            println!("p99 {before:?} became {after:?}; {} and {} not asked", alone.missed, beside.missed);
            (after.as_secs_f64() / before.as_secs_f64(), before, after)
        })
        .collect();

    let count = |status: u16| statuses.iter().filter(|answer| **answer == status).count();
    let (hashed, refused) = (count(422), count(503));
    assert_eq!(hashed + refused, statuses.len(), "{statuses:?}");
    assert!(hashed > 0 && refused > 0, "{hashed} hashed, {refused} refused");
    // A hash takes 19 MiB, and every two cores have one at a time, up to four. The rest is for 200 connections.
    let at_once = (thread::available_parallelism().unwrap().get() as u64 / 2).clamp(1, 4);
    assert!(grown < (at_once * 19 + 16) << 20, "{grown} bytes more");
    trials.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (least, (median, before, after), most) = (trials[0].0, trials[trials.len() / 2], trials[trials.len() - 1].0);
    trial::measured(&format!(
        "{} sign-ins by {AT_ONCE} at once: {hashed} hashed, {refused} refused, {} MiB more; p99 of {rate:.0} lists a \
         second {median:.2} times as long, {before:?} without and {after:?} with them (median of {} rounds, {least:.2} \
         to {most:.2} times; {missed} not asked, since an answer before was late)",
        statuses.len(),
        grown >> 20,
        trials.len()
    ));
    if is_full() {
        assert!(median <= 2.0, "p99 {before:?} became {after:?}");
        // What was not even asked, since the answer before was late, is in no percentile.
        assert!(missed <= asked / 100, "{missed} not asked, and {asked} asked");
    }
}

/// Two hundred who try to sign in, the first time all at once, and come back as they are told.
fn flood(address: &str, round: u32, until: Instant) -> Vec<JoinHandle<Vec<u16>>> {
    let together = Arc::new(Barrier::new(AT_ONCE));
    let client = |who: usize| {
        let (address, together) = (address.to_owned(), Arc::clone(&together));
        move || {
            together.wait();
            let (first, _) = sign_in(&address, who, round * TURNS);
            let mut statuses = vec![first];
            // Two hundred threads of ours that wake in the same moment, every second, would be what is measured.
            thread::sleep(Duration::from_secs(1) * who as u32 / AT_ONCE as u32);
            for turn in round * TURNS + 1.. {
                if Instant::now() >= until {
                    break;
                }
                let (status, rest) = sign_in(&address, who, turn);
                statuses.push(status);
                thread::sleep(rest);
            }
            statuses
        }
    };
    (0..AT_ONCE).map(|who| thread::spawn(client(who))).collect()
}

/// Tries to sign in as somebody else each time, with a wrong password; the status, and how long to rest.
fn sign_in(address: &str, who: usize, turn: u32) -> (u16, Duration) {
    let body = format!("email={who}.{turn}@example.com&password=wrong+horse+battery");
    let request = format!(
        "POST /sign-in HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\n\
         x-forwarded-for: 10.{}.{}.{who}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        turn / 250 % 250,
        turn % 250,
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, if status == 503 { retry_after(&answer) } else { Duration::from_millis(100) })
}
