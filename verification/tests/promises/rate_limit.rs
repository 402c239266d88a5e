//! Promise 33: rate limits are exact, forged addresses do not evade them, and their memory is bounded.

use std::thread;
use std::time::{Duration, Instant};

use petstore::api::RateLimit;
use petstore::api::admission::rate_limit::RateLimits;
use petstore::domain::{AccountId, Timestamp};
use petstore::runtime::clock::Clock;
use testkit::console::{PASSWORD, form};
use testkit::{Database, Random, Server, trial};

const CLIENTS: u64 = 8;

/// Sign-in attempts per network address: a burst of this many, then one per so many seconds.
const ATTEMPTS: u64 = 30;
const SECONDS_PER_ATTEMPT: u64 = 20;

#[test]
fn burst_is_limited_exactly() {
    const LIMIT: u64 = 20;
    let rounds = trial::rounds(3);
    let database = Database::temporary();
    let [service, second] = [(); 2].map(|()| database.serve_with("--rate-limit 20/h"));
    for round in 0..rounds {
        let key = database.key_of(&format!("{round}@example.com"));
        // The limit regains a request in three minutes.
        assert_eq!(allowed_of_burst(&service, &key, LIMIT / 4), LIMIT, "round {round}");
        // Control: another process counts separately and allows as many again.
        assert_eq!(allowed_of_burst(&second, &key, LIMIT / 4), LIMIT, "round {round}");
    }
    trial::measured(&format!(
        "{rounds} accounts with {CLIENTS} clients of two listeners: {LIMIT} of {} each",
        2 * LIMIT
    ));
}

/// Sends `each` requests from every client at once. Returns the number of allowed requests.
fn allowed_of_burst(service: &Server, key: &str, each: u64) -> u64 {
    thread::scope(|scope| {
        let send = |client: u64| {
            move || {
                let statuses = (0..each).map(|_| match client % 2 {
                    0 => service.get("/v1/pets", key).status(),
                    _ => service.send_message(key, "Hello").status(),
                });
                statuses.filter(|status| [200, 202].contains(status)).count() as u64
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(send(client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

#[test]
fn sustained_rate_is_limited_exactly() {
    // A full bucket gains nothing, so it must be too large to fill during a pause of the machine. One client must empty it.
    const LIMIT: u64 = 300;
    const PER_SECOND: f64 = LIMIT as f64 / 60.0;
    let lasts = Duration::from_secs(u64::from(trial::rounds(3)).min(60));
    let database = Database::temporary();
    let service = database.serve_with("--rate-limit 300/min");
    let key = database.make_key();
    let is_allowed = || service.get("/v1/pets", &key).status() == 200;
    let before_first_rejection = send_until(&is_allowed, |allowed| !allowed);

    // Many times the limit, without using the whole machine.
    let is_allowed_after_pause = || {
        thread::sleep(Duration::from_millis(5));
        is_allowed()
    };
    let flood_ends = Instant::now() + lasts;
    let allowed: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| send_until(&is_allowed_after_pause, |_| Instant::now() > flood_ends).allowed))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let last = send_until(&is_allowed, |allowed| !allowed);

    // The bucket was empty at a moment within each of the two rejected requests.
    let least = PER_SECOND * (last.sent - before_first_rejection.answered).as_secs_f64();
    let most = PER_SECOND * (last.answered - before_first_rejection.sent).as_secs_f64();
    let count = (allowed + last.allowed) as f64;
    assert!((least - 1.0..=most + 1.0).contains(&count), "{count} for {least:.1} to {most:.1}");
    trial::measured(&format!("{count} in {lasts:?} of a flood, {least:.1} to {most:.1} being exact"));
}

/// Requests that are allowed for this long have no limit.
const NO_LIMIT: Duration = Duration::from_mins(5);

/// The number of allowed requests, and the times of the last one and its response.
struct Sent {
    allowed: u64,
    sent: Instant,
    answered: Instant,
}

/// Repeats a request until `is_last` is true for its result.
fn send_until(is_allowed: &impl Fn() -> bool, is_last: impl Fn(bool) -> bool) -> Sent {
    let (began, mut allowed) = (Instant::now(), 0);
    loop {
        let sent = Instant::now();
        assert!(sent - began < NO_LIMIT, "{allowed} requests were allowed, and none was the last");
        let result = is_allowed();
        allowed += u64::from(result);
        if is_last(result) {
            return Sent { allowed, sent, answered: Instant::now() };
        }
    }
}

#[test]
fn forged_forwarded_address_gains_no_attempts() {
    let (rounds, mut random) = (trial::rounds(40), Random::from_seed());
    let tries = u64::from(rounds).max(ATTEMPTS + 10);
    let database = Database::temporary();
    // Without a trusted proxy, the header is ignored. Behind one, only the address that the proxy appended counts.
    let cases = [("", ""), ("--trusted-proxy 10.0.0.0/8", ""), ("--trusted-proxy 127.0.0.1", ", 203.0.113.9")];
    let mut figures = Vec::new();
    for (flags, appended) in cases {
        let service = database.serve_with(flags);
        let began = Instant::now();
        let allowed = (0..tries).filter(|round| sign_in(&service, &mut random, *round, appended) == 422).count() as u64;
        let most = ATTEMPTS + began.elapsed().as_secs() / SECONDS_PER_ATTEMPT + 1;
        assert!((ATTEMPTS..=most).contains(&allowed), "{flags:?}: {allowed} of {tries}, at most {most}");
        figures.push(allowed.to_string());
    }
    // Control: if a trusted proxy appends nothing, each forged address counts as another client.
    let service = database.serve_with("--trusted-proxy 127.0.0.1");
    let allowed = (0..tries).filter(|round| sign_in(&service, &mut random, *round, "") == 422).count();
    assert_eq!(allowed as u64, tries);
    trial::measured(&format!("{} of {tries} sign-ins from forged addresses allowed", figures.join(", ")));
}

/// Tries to sign in with a new account and a new forged address. Returns the status.
fn sign_in(service: &Server, random: &mut Random, round: u64, appended: &str) -> u16 {
    let [a, b, c, d, ..] = random.next().to_be_bytes();
    let forged = match round % 2 {
        0 => format!("198.{}.{b}.{c}", 18 + a % 2),
        _ => format!("2001:db8:{a:x}{b:x}:{c:x}{d:x}::1"),
    };
    let email = format!("{round}@lovelace.example");
    let request = form(service.store(), "/sign-in", &[("email", &email), ("password", PASSWORD)])
        .header("x-forwarded-for", &format!("{forged}{appended}"))
        .header("x-real-ip", &forged)
        .header("forwarded", &format!("for=\"{forged}\""));
    request.send_blocking().status()
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
    assert_eq!(limits.remembered() as i64, accounts, "control: all accounts are remembered");
    // With few accounts, most of the growth comes from other tests.
    if accounts >= 1_000_000 {
        assert!(grown <= accounts.unsigned_abs() * BYTES_EACH, "{grown} bytes");
    }
    let mut longest = Duration::ZERO;
    for minute in 1..=3 {
        clock.set(begun.plus(Duration::from_secs(60 * minute)));
        for account in (0..1_000).map(AccountId) {
            let began = Instant::now();
            assert_eq!(limits.take(account).remaining, 599, "the limit is full again, remembered or not");
            longest = longest.max(began.elapsed());
        }
    }
    assert_eq!(limits.remembered(), 1_000);
    trial::measured(&format!(
        "{accounts} accounts in {:.1} MiB; forgotten after two windows; no request waited longer than {longest:.1?}",
        grown as f64 / f64::from(1 << 20)
    ));
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
