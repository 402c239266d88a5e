//! Promise 24: no input crashes a parser.
//!
//! Inputs are mutations of valid ones: flips, cuts, repetitions and splices. Accepted values are checked against the
//! invariants of their type, so a parser that accepts everything fails too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use petstore::config::{self, BaseUrl, File, Network, ServiceSettings};
use petstore::domain::{ApiKey, Deployment, MessageId, MessageText};
use petstore::http::{parse_message, parse_new_pet, parse_pet_query};
use petstore::representation::pet_json;
use petstore::store::postgres::DatabaseUrl;
use testkit::{Random, trial};

const SHORT: u32 = 100_000;

/// Bytes with a meaning to one of the parsers, separated by spaces.
const TOKENS: &[u8] = b"\" \\ { } [ ] , : \\u0000 \\ud800 \\udc00 e999 - . & = % %00 + \x00 \xff \xed\xa0\x80 \
    \xf0\x9f\xa6\x8a \n \r\n limit status after name categoryId 9223372036854775808 -9223372036854775808 \
    18446744073709551616 msg_ pet_live_ pet_test_ :// @ / # ''' true null";

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
            // The JSON of an accepted animal parses to the same animal.
            let shown = String::from_utf8(pet_json(&pet.clone().with_id(1))).unwrap();
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
    let command = <ServiceSettings as clap::Args>::augment_args(clap::Command::new("serve"));
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
        // A typical bug: byte offset 4 may be inside a character.
        text.len() > 4 && !text[..4].is_empty()
    };
    let found = catch_unwind(|| fuzz("control", &["available"], crashes)).unwrap_err();
    let what = found.downcast_ref::<String>().unwrap();
    assert!(what.contains("control: crashed by"), "{what}");
}

/// Calls `parse` with as many inputs as the run has rounds. `parse` returns whether it accepts its input.
fn fuzz<S: AsRef<[u8]>>(what: &str, seeds: &[S], parse: impl Fn(&[u8]) -> bool) {
    let mut random = Random::from_seed();
    let seeds: Vec<&[u8]> = seeds.iter().map(AsRef::as_ref).collect();
    let tokens: Vec<&[u8]> = TOKENS.split(|byte| *byte == b' ').collect();
    let rounds = trial::rounds(SHORT);
    let mut accepted = 0;
    let mut input = Vec::new();
    for _ in 0..rounds {
        mutate(&mut input, &seeds, &tokens, &mut random);
        match catch_unwind(AssertUnwindSafe(|| parse(&input))) {
            Ok(is_accepted) => accepted += u32::from(is_accepted),
            Err(_) => panic!("{what}: crashed by {:?}", input.escape_ascii().to_string()),
        }
    }
    let share = u64::from(accepted) * 100 / u64::from(rounds);
    assert!(accepted > 0 && accepted < rounds, "{what}: all inputs are valid or all are invalid, so little was tested");
    trial::measured(&format!("{what}: {rounds} inputs, 0 crashes, {share} % of them accepted"));
}

fn mutate(input: &mut Vec<u8>, seeds: &[&[u8]], tokens: &[&[u8]], random: &mut Random) {
    input.clear();
    input.extend_from_slice(seeds[random.index(seeds.len())]);
    // Mostly one change, seldom many.
    let changes = random.next().trailing_zeros().min(12);
    for _ in 0..changes {
        let position = random.index(input.len() + 1);
        let end = position + random.index(input.len() + 1 - position);
        match random.index(8) {
            0 if position < input.len() => input[position] ^= 1 << random.index(8),
            1 if position < input.len() => input[position] = random.next() as u8,
            2 => drop(input.drain(position..end)),
            3 => input.truncate(position),
            4 => {
                let piece = input[position..end].to_vec();
                let times = 1 + random.index(4);
                input.splice(position..position, piece.repeat(times));
            }
            5 => {
                let other = seeds[random.index(seeds.len())];
                let from = random.index(other.len() + 1);
                input.splice(position..end, other[from..].iter().copied());
            }
            _ => drop(input.splice(position..position, tokens[random.index(tokens.len())].iter().copied())),
        }
        input.truncate(4_096);
    }
}
