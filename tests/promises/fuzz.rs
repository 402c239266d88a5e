//! Promise 24: no bytes from outside crash a parser.
//!
//! Inputs grow from valid ones by flips, cuts, repetitions and splices. Whatever is accepted is held to what its type
//! promises, so that a parser that takes everything does not pass either.

use std::panic::{AssertUnwindSafe, catch_unwind};

use petstore::config::{self, BaseUrl, File, Network, Service};
use petstore::domain::{ApiKey, Deployment, MessageId, MessageText};
use petstore::http::{parse_message, parse_new_pet, parse_pet_query};
use petstore::store::postgres::DatabaseUrl;
use testkit::{Random, trial};

const SHORT: u32 = 100_000;

/// Bytes that mean something to one of the parsers.
const TOKENS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"e999",
    b"-",
    b".",
    b"&",
    b"=",
    b"%",
    b"%00",
    b"+",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xf0\x9f\xa6\x8a",
    b"\n",
    b"\r\n",
    b"limit",
    b"status",
    b"after",
    b"name",
    b"categoryId",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"msg_",
    b"pet_live_",
    b"pet_test_",
    b"://",
    b"@",
    b"/",
    b"#",
    b"'''",
    b"true",
    b"null",
];

#[test]
fn no_key_crashes_its_parser() {
    let keys = [Deployment::Production, Deployment::Staging].map(ApiKey::generate);
    let seeds = keys.map(|key| key.expose().as_bytes().to_vec());
    fuzz("key", &seeds, |bytes| {
        let live = ApiKey::hash_presented(bytes, Deployment::Production);
        let test = ApiKey::hash_presented(bytes, Deployment::Staging);
        assert!(live.is_none() || bytes.starts_with(b"pet_live_"));
        assert!(test.is_none() || bytes.starts_with(b"pet_test_"));
        live.or(test).is_some()
    });
}

#[test]
fn no_query_crashes_its_parser() {
    let seeds = ["limit=20&status=available&after=31", "limit=%32%30", "after=-9223372036854775808", "status=sold", ""];
    fuzz("query", &seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let query = parse_pet_query(text);
        query.is_ok_and(|query| {
            assert!((1..=100).contains(&query.limit.get()));
            true
        })
    });
}

#[test]
fn no_body_crashes_its_parser() {
    let seeds = [
        r#"{"name":"Rex","categoryId":3,"status":"available"}"#,
        r#"{"name":"\ud83e\udd8a\u0041","categoryId":-3.0e0,"other":[{"deep":[1e999,null,true]}]}"#,
        r#" { "categoryId" : 9223372036854775807 , "name" : "x" } "#,
        r#"{"message":"Hello,\tstore!\n"}"#,
    ];
    fuzz("body", &seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let pet = parse_new_pet(text).map(|pet| {
            let characters = pet.name.as_str().chars().count();
            assert!((1..=255).contains(&characters) && !pet.name.as_str().chars().any(char::is_control));
            // What was taken is shown as it was taken.
            let shown = String::from_utf8(pet.clone().with_id(1).to_json()).unwrap();
            assert_eq!(parse_new_pet(&shown).unwrap(), pet);
        });
        let message = parse_message(text).map(|message| {
            assert!((1..=MessageText::MAX_CHARACTERS).contains(&message.as_str().chars().count()));
        });
        pet.is_ok() || message.is_ok()
    });
}

#[test]
fn no_cursor_crashes_its_parser() {
    let seeds = ["msg_0199c2f0a1b47c3d8e5f60718293a4b5", "msg_00000000000000000000000000000000", "31", "-1"];
    fuzz("cursor", &seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let message = MessageId::parse(text).map(|id| assert_eq!(id.to_string(), text.to_ascii_lowercase()));
        let pet = parse_pet_query(&format!("after={text}"));
        message.is_some() || pet.is_ok()
    });
}

#[test]
fn no_configuration_crashes_its_parser() {
    let command = <Service as clap::Args>::augment_args(clap::Command::new("serve"));
    let seeds = [
        "listen = \"127.0.0.1:8080\"\nbase-url = 'https://shop.example/v1'\nmax-connections = 100\n",
        "trusted-proxy = [\"10.0.0.0/8\", \"2001:db8::/32\"]\ndrain-delay = \"90d\"\n",
        "cors-origin = ['https://a.example:443']\n# a comment\n",
        "postgres://user:secret@db1:5432,[::1]:5433/petstore?connect_timeout=3",
        "https://shop.example:8443/base/v1",
        "10.0.0.0/8",
        "90d",
    ];
    fuzz("configuration", &seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let file = File::parse(text, &command).is_ok();
        let url = BaseUrl::parse(text).map(|url| assert!(url.origin().starts_with("http") && url.as_str() == text));
        let database = DatabaseUrl::parse(text).map(|url| format!("{url}{url:?}"));
        let duration = config::duration(text).map(|time| assert!(time.as_secs() <= 365_250 * 86_400));
        file || url.is_ok() || database.is_ok() || duration.is_ok() || Network::parse(text).is_ok()
    });
}

#[test]
fn crashing_parser_is_detected() {
    let crashes = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        // The usual mistake: a length in bytes, where a character has several.
        text.len() > 4 && !text[..4].is_empty()
    };
    let found = catch_unwind(|| fuzz("control", &["available"], crashes)).unwrap_err();
    let what = found.downcast_ref::<String>().unwrap();
    assert!(what.contains("control: crashed by"), "{what}");
}

/// Gives `parse` as many inputs as the run has rounds; it returns whether it took one.
fn fuzz<S: AsRef<[u8]>>(what: &str, seeds: &[S], parse: impl Fn(&[u8]) -> bool) {
    let mut random = Random::from_seed();
    let seeds: Vec<&[u8]> = seeds.iter().map(AsRef::as_ref).collect();
    let rounds = trial::rounds(SHORT);
    let mut accepted = 0;
    let mut input = Vec::new();
    for _ in 0..rounds {
        mutate(&mut input, &seeds, &mut random);
        match catch_unwind(AssertUnwindSafe(|| parse(&input))) {
            Ok(taken) => accepted += u32::from(taken),
            Err(_) => panic!("{what}: crashed by {:?}", input.escape_ascii().to_string()),
        }
    }
    let share = u64::from(accepted) * 100 / u64::from(rounds);
    assert!(accepted > 0 && accepted < rounds, "{what}: the inputs are all good or all bad, and test little");
    trial::measured(&format!("{what}: {rounds} inputs, 0 crashes, {share} % of them accepted"));
}

fn mutate(input: &mut Vec<u8>, seeds: &[&[u8]], random: &mut Random) {
    input.clear();
    input.extend_from_slice(seeds[below(random, seeds.len())]);
    // Often one change, seldom many.
    let changes = random.next().trailing_zeros().min(12);
    for _ in 0..changes {
        let position = below(random, input.len() + 1);
        let end = position + below(random, input.len() + 1 - position);
        match below(random, 8) {
            0 if position < input.len() => input[position] ^= 1 << below(random, 8),
            1 if position < input.len() => input[position] = random.next() as u8,
            2 => drop(input.drain(position..end)),
            3 => input.truncate(position),
            4 => {
                let piece = input[position..end].to_vec();
                let times = 1 + below(random, 4);
                input.splice(position..position, piece.repeat(times));
            }
            5 => {
                let other = seeds[below(random, seeds.len())];
                let from = below(random, other.len() + 1);
                input.splice(position..end, other[from..].iter().copied());
            }
            _ => drop(input.splice(position..position, TOKENS[below(random, TOKENS.len())].iter().copied())),
        }
        input.truncate(4_096);
    }
}

/// A position below `end`.
fn below(random: &mut Random, end: usize) -> usize {
    random.below(end as u64) as usize
}
