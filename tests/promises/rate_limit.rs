//! Promise 33: rate limits are exact, can't be got around with a forged address, and take little memory.

use std::thread;
use std::time::{Duration, Instant};

use petstore::clock::Clock;
use petstore::config::RateLimit;
use petstore::domain::{AccountId, Timestamp};
use petstore::http::rate_limit::RateLimits;
use testkit::{Database, Random, Server, trial};

use crate::forms::{PASSWORD, post};

const CLIENTS: u64 = 8;

/// How many attempts to sign in an address of the network has at once, and in how many seconds one comes back.
const ATTEMPTS: u64 = 30;
const ONE_EACH: u64 = 20;

#[test]
fn burst_is_limited_exactly() {
    const LIMIT: u64 = 100;
    let rounds = trial::rounds(3);
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let [service, second] = [(); 2].map(|()| database.serve_with("--rate-limit 100/h"));
    for round in 0..rounds {
        let key = database.key_of(&format!("{round}@example.com"));
        // Less than a request comes back while this lasts.
        let allowed = ask_at_once(&service, &key, LIMIT / 4);
        assert_eq!(allowed, LIMIT, "round {round}");
        // The control: another process counts for itself, so that the account gets as many again.
        assert_eq!(ask_at_once(&second, &key, LIMIT / 4), LIMIT, "round {round}");
    }
    trial::measured(&format!("{rounds} accounts with {CLIENTS} clients at two doors: {LIMIT} of {} each", 2 * LIMIT));
}

/// How many of so many requests by each of the clients are let through.
fn ask_at_once(service: &Server, key: &str, each: u64) -> u64 {
    thread::scope(|scope| {
        let ask = |client: u64| {
            move || {
                let answers = (0..each).map(|_| match client % 2 {
                    0 => service.get("/v1/pets", key).status,
                    _ => service.send_message(key, "Hello").status,
                });
                answers.filter(|status| [200, 202].contains(status)).count() as u64
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(ask(client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

#[test]
fn sustained_rate_is_limited_exactly() {
    // Large enough that a pause of the machine can't fill it: a full bucket gains nothing.
    const LIMIT: u64 = 3000;
    const PER_SECOND: f64 = LIMIT as f64 / 60.0;
    let lasts = Duration::from_secs(u64::from(trial::rounds(3)).min(60));
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let service = database.serve_with("--rate-limit 3000/min");
    let key = database.make_key();
    let is_allowed = || service.get("/v1/pets", &key).status == 200;
    let before_first_rejection = ask_until(&is_allowed, |allowed| !allowed);

    let flood_ends = Instant::now() + lasts;
    let allowed: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| ask_until(&is_allowed, |_| Instant::now() > flood_ends).allowed))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let last = ask_until(&is_allowed, |allowed| !allowed);

    // The bucket was empty at a moment within each of the two rejected requests.
    let least = PER_SECOND * (last.sent - before_first_rejection.answered).as_secs_f64();
    let most = PER_SECOND * (last.answered - before_first_rejection.sent).as_secs_f64();
    let count = (allowed + last.allowed) as f64;
    assert!((least - 1.0..=most + 1.0).contains(&count), "{count} for {least:.1} to {most:.1}");
    trial::measured(&format!("{count} in {lasts:?} of a flood, {least:.1} to {most:.1} being exact"));
}

/// How many requests were allowed, and when the last one was sent and answered.
struct Asked {
    allowed: u64,
    sent: Instant,
    answered: Instant,
}

/// Repeats a request until its result, whether it was allowed, is the last.
fn ask_until(is_allowed: &impl Fn() -> bool, is_last: impl Fn(bool) -> bool) -> Asked {
    let mut allowed = 0;
    loop {
        let sent = Instant::now();
        let result = is_allowed();
        allowed += u64::from(result);
        if is_last(result) {
            return Asked { allowed, sent, answered: Instant::now() };
        }
    }
}

#[test]
fn forged_forwarded_address_gains_no_attempts() {
    let (rounds, mut random) = (trial::rounds(40), Random::from_seed());
    let tries = u64::from(rounds).max(ATTEMPTS + 10);
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let trusting = |flags| database.serve_with(flags);
    // Without a trusted proxy nobody is believed. Behind one, what it wrote is, and not what stood there before.
    let cases = [("", ""), ("--trusted-proxy 10.0.0.0/8", ""), ("--trusted-proxy 127.0.0.1", ", 203.0.113.9")];
    let mut figures = Vec::new();
    for (flags, written) in cases {
        let service = trusting(flags);
        let began = Instant::now();
        let allowed = (0..tries).filter(|round| sign_in(&service, &mut random, *round, written) == 422).count() as u64;
        let most = ATTEMPTS + began.elapsed().as_secs() / ONE_EACH + 1;
        assert!((ATTEMPTS..=most).contains(&allowed), "{flags:?}: {allowed} of {tries}, at most {most}");
        figures.push(allowed.to_string());
    }
    // The control: where the proxy is believed and writes no more, each of those addresses is another client.
    let service = trusting("--trusted-proxy 127.0.0.1");
    let let_through = (0..tries).filter(|round| sign_in(&service, &mut random, *round, "") == 422).count();
    assert_eq!(let_through as u64, tries);
    trial::measured(&format!("{} of {tries} sign-ins from forged addresses let through", figures.join(", ")));
}

/// Tries to sign in, each time with another account and another forged address; returns the status.
fn sign_in(service: &Server, random: &mut Random, round: u64, written: &str) -> u16 {
    let [a, b, c, d, ..] = random.next().to_be_bytes();
    let forged = match round % 2 {
        0 => format!("198.{}.{b}.{c}", 18 + a % 2),
        _ => format!("2001:db8:{a:x}{b:x}:{c:x}{d:x}::1"),
    };
    let headers =
        format!("X-Forwarded-For: {forged}{written}\r\nX-Real-IP: {forged}\r\nForwarded: for=\"{forged}\"\r\n");
    let email = format!("{round}@lovelace.example");
    post(service, "/sign-in", &headers, &[("email", &email), ("password", PASSWORD)]).status
}

#[test]
fn million_accounts_use_little_memory_for_a_short_time() {
    const BYTES_EACH: u64 = 64;
    let accounts = i64::from(trial::rounds(10)) * 10_000;
    let begun = Timestamp::from_milliseconds(1_795_167_000_123);
    let clock = Clock::fixed(begun);
    let limits = RateLimits::new(RateLimit::parse("600/min").unwrap(), clock.clone());
    let before = resident();
    for account in (0..accounts).map(AccountId) {
        assert_eq!(limits.take(account).remaining, 599);
    }
    let grown = resident().saturating_sub(before);
    assert_eq!(limits.remembered() as i64, accounts, "the control: nothing is forgotten before its time");
    // What other tests use meanwhile is in it too, which with a few accounts would be most of it.
    if accounts >= 1_000_000 {
        assert!(grown <= accounts.unsigned_abs() * BYTES_EACH, "{grown} bytes");
    }
    let mut longest = Duration::ZERO;
    for minute in 1..=3 {
        clock.set(begun.plus(Duration::from_secs(60 * minute)));
        for account in (0..1_000).map(AccountId) {
            let began = Instant::now();
            assert_eq!(limits.take(account).remaining, 599, "it is full again, forgotten or not");
            longest = longest.max(began.elapsed());
        }
    }
    assert_eq!(limits.remembered(), 1_000);
    trial::measured(&format!(
        "{accounts} accounts in {:.1} MiB; forgotten after two windows; no request waited longer than {longest:.1?}",
        grown as f64 / f64::from(1 << 20)
    ));
}

/// The bytes of memory that this process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
