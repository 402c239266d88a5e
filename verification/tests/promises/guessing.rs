//! Promise 26: signing in does not reveal which addresses have accounts. The response and its duration are the same for an
//! address without one. Signing up reveals it, because it signs the new account in.

use std::time::Duration;

use testkit::console::{PASSWORD, form};
use testkit::{Database, Random, Response, Server, trial};

/// Number of addresses with an account. They are tried in turn, so that no limit per account applies.
const KNOWN: u64 = 200;

/// Minimum number of rounds for a meaningful median.
const ENOUGH: u32 = 100;

#[test]
fn sign_in_treats_known_and_unknown_addresses_alike() {
    let (rounds, mut random) = (trial::rounds(8), Random::from_seed());
    let database = Database::temporary();
    let service = database.serve_with("--trusted-proxy 127.0.0.1");
    let known = KNOWN.min(u64::from(rounds));
    for number in 0..known {
        let email = format!("known-{number}@lovelace.example");
        for path in ["/sign-up", "/sign-in"] {
            let response = post(&service, &mut random, path, &email, PASSWORD);
            assert_eq!(response.status(), 303, "{path}: {}", response.body);
        }
    }
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..u64::from(rounds) {
        let emails = [format!("known-{}@lovelace.example", round % known), format!("other-{round}@lovelace.example")];
        let mut shown = [String::new(), String::new()];
        // The order is random, because the second request finds caches warm.
        let first = random.index(2);
        for which in [first, 1 - first] {
            let response = attempt(&service, &mut random, &emails[which]);
            assert_eq!(response.status(), 422, "{}", response.body);
            let length = response.header("content-length").unwrap().parse::<usize>().unwrap();
            assert_eq!(length, response.body.len());
            took[which].push(response.took);
            shown[which] = response.shown().replace(&emails[which], "EMAIL");
        }
        assert_eq!(shown[0], shown[1], "known, unknown");
    }
    let [known, unknown] = took.map(median);
    let difference = known.as_secs_f64() / unknown.as_secs_f64() - 1.0;
    let figures = format!("{known:.2?} against {unknown:.2?} ({:+.1} %)", difference * 100.0);
    // Few rounds, or a build without optimisation, give no meaningful times.
    if rounds >= ENOUGH && !cfg!(debug_assertions) {
        assert!(difference.abs() <= 0.05, "{figures}");
        // Control: a response without hashing is measurably faster.
        let malformed = median((0..rounds).map(|_| attempt(&service, &mut random, "nobody").took).collect());
        assert!(malformed < unknown / 2, "{malformed:?} without a hash, {unknown:?} with one");
    }
    trial::measured(&format!("{rounds} rounds, the same responses; medians {figures}"));
}

fn attempt(service: &Server, random: &mut Random, email: &str) -> Response {
    post(service, random, "/sign-in", email, "not the password")
}

/// Sends credentials from an unused network address, so that only the limit per account applies.
fn post(service: &Server, random: &mut Random, path: &str, email: &str, password: &str) -> Response {
    let [_, a, b, c, ..] = random.next().to_be_bytes();
    let request = form(service.store(), path, &[("email", email), ("password", password)]);
    request.header("x-forwarded-for", &format!("10.{a}.{b}.{c}")).send_blocking()
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
