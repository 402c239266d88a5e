//! Promise 26: signing in does not reveal whether an address has an account. The response and its duration are the same
//! for an address without one. Signing up reveals it, because it signs the new account in.

use std::time::Duration;
use testkit::blocking::Response;
use testkit::{Database, Random, Server, trial};

use crate::forms::{PASSWORD, post};

/// How many addresses have an account. Each is tried in turn, so that none is tried too often.
const KNOWN: u64 = 200;

/// How many rounds there must be for their medians to say something.
const TELLING: u32 = 100;

#[test]
fn sign_in_treats_known_and_unknown_addresses_alike() {
    let (rounds, mut random) = (trial::rounds(8), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let service = Database::folder(folder.path()).serve_with("--trusted-proxy 127.0.0.1");
    let known = KNOWN.min(u64::from(rounds));
    for number in 0..known {
        let email = format!("known-{number}@lovelace.example");
        // Its owner gets in, so it is known.
        for path in ["/sign-up", "/sign-in"] {
            let answer = post(&service, path, &from_anywhere(&mut random), &form(&email, PASSWORD));
            assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        }
    }
    let mut took = [Vec::new(), Vec::new()];
    let mut answers = [String::new(), String::new()];
    for round in 0..u64::from(rounds) {
        let emails = [format!("known-{}@lovelace.example", round % known), format!("other-{round}@lovelace.example")];
        // The order is random, because the second request finds caches warm.
        let first = random.below(2) as usize;
        for which in [first, 1 - first] {
            let answer = attempt(&service, &mut random, &emails[which]);
            assert_eq!(answer.status, 422, "{}", answer.text);
            took[which].push(answer.took);
            answers[which] = shown(&answer, &emails[which]);
        }
        assert_eq!(answers[0], answers[1], "known, unknown");
    }
    let [known, unknown] = took.map(median);
    let difference = known.as_secs_f64() / unknown.as_secs_f64() - 1.0;
    let figures = format!("{known:.2?} against {unknown:.2?} ({:+.1} %)", difference * 100.0);
    // Few rounds, or a build without optimisation, give no meaningful times.
    if rounds >= TELLING && !cfg!(debug_assertions) {
        assert!(difference.abs() <= 0.05, "{figures}");
        // Control: a response without hashing is measurably faster.
        let malformed = median((0..rounds).map(|_| attempt(&service, &mut random, "nobody").took).collect());
        assert!(malformed < unknown / 2, "{malformed:?} without a hash, {unknown:?} with one");
    }
    trial::measured(&format!("{rounds} rounds, the same answers; medians {figures}"));
}

/// Tries a wrong password from an unused network address, so that only the limit per account applies.
fn attempt(service: &Server, random: &mut Random, email: &str) -> Response {
    post(service, "/sign-in", &from_anywhere(random), &form(email, "not the password"))
}

const fn form<'a>(email: &'a str, password: &'a str) -> [(&'static str, &'a str); 2] {
    [("email", email), ("password", password)]
}

fn from_anywhere(random: &mut Random) -> String {
    let [_, a, b, c, ..] = random.next().to_be_bytes();
    format!("X-Forwarded-For: 10.{a}.{b}.{c}\r\n")
}

/// An answer without what differs from request to request.
fn shown(answer: &Response, email: &str) -> String {
    let lines = answer.text.lines().filter(|line| !line.starts_with("x-request-id: ") && !line.starts_with("date: "));
    let shown: String = lines.flat_map(|line| [line, "\n"]).collect();
    // Its length is the page's, whose only difference is the address.
    shown.replace(email, "EMAIL").replace(&format!("content-length: {}", body_length(answer)), "content-length: LENGTH")
}

fn body_length(answer: &Response) -> usize {
    answer.text.split_once("\r\n\r\n").unwrap().1.len()
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
