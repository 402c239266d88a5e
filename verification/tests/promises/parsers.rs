//! Promise 47: no input crashes a parser.
//!
//! `scripts/fuzz` finds inputs by the code that they reach, and keeps them in fuzz/corpus. Accepted values are checked against
//! the invariants of their type, so a parser that accepts everything fails too.

use std::sync::LazyLock;

use bounded_http::RequestLine;
use clap::{Args, Command};
use http::{Method, Uri};
use petstore::api::{BaseUrl, Listener, Network};
use petstore::api::{Target, parse_message, parse_new_pet, parse_page_query, parse_prefer};
use petstore::config::{File, ServiceSettings};
use petstore::domain::{ApiKey, Deployment, IdempotencyKey, MessageId, MessageText, PetStatus};
use petstore::store::postgres::DatabaseUrl;

/// Returns whether the parser accepts the input.
pub type Parser = fn(&[u8]) -> bool;

pub const ALL: [(&str, Parser); 10] = [
    ("body", body),
    ("control", control),
    ("cursor", cursor),
    ("idempotency_key", idempotency_key),
    ("key", key),
    ("postgres_url", postgres_url),
    ("prefer", prefer),
    ("query", query),
    ("settings", settings),
    ("target", target),
];

fn body(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let pet = parse_new_pet(text).map(|pet| {
        let characters = pet.name.as_str().chars().count();
        assert!((1..=255).contains(&characters) && !pet.name.as_str().chars().any(char::is_control));
        // The JSON of an accepted animal parses to the same animal.
        let shown = String::from_utf8(pet.clone().with_id(1).to_json()).unwrap();
        assert_eq!(parse_new_pet(&shown).unwrap(), pet);
    });
    let message = parse_message(text).map(|message| {
        assert!((1..=MessageText::MAX_CHARACTERS).contains(&message.as_str().chars().count()));
    });
    pet.is_ok() || message.is_ok()
}

/// A bug that random inputs do not reach, but a search that sees which branches they take does.
fn control(bytes: &[u8]) -> bool {
    assert!(!(bytes.len() == 6 && bytes[0] == b'#' && bytes[2] == b'(' && bytes[4] == b'~' && bytes[5] > bytes[3]));
    bytes.len() > 3
}

fn cursor(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let message = MessageId::parse(text).map(|id| assert_eq!(id.to_string(), text));
    message.is_some() || parse_page_query(Some(&format!("after={text}")), PetStatus::parse).is_ok()
}

fn idempotency_key(bytes: &[u8]) -> bool {
    let key = IdempotencyKey::parse(bytes);
    assert!(key.is_err() || bytes.iter().all(u8::is_ascii_graphic));
    key.is_ok()
}

fn key(bytes: &[u8]) -> bool {
    let live = ApiKey::hash_presented(bytes, Deployment::Production);
    let test = ApiKey::hash_presented(bytes, Deployment::Staging);
    assert!(live.is_none() || bytes.starts_with(b"pet_live_"));
    assert!(test.is_none() || bytes.starts_with(b"pet_test_"));
    live.or(test).is_some()
}

fn postgres_url(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    DatabaseUrl::parse(text).map(|url| format!("{url}{url:?}")).is_ok()
}

fn prefer(bytes: &[u8]) -> bool {
    let line = String::from_utf8_lossy(bytes);
    assert!(parse_prefer(&line).all(|(name, ..)| !name.is_empty() && !name.contains(|c: char| c.is_ascii_uppercase())));
    parse_prefer(&line).next().is_some()
}

fn query(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let query = parse_page_query(Some(text), PetStatus::parse);
    query.map(|query| assert!((1..=100).contains(&query.limit.get()))).is_ok()
}

fn settings(bytes: &[u8]) -> bool {
    static COMMAND: LazyLock<Command> = LazyLock::new(|| ServiceSettings::augment_args(Command::new("serve")));
    let Ok(text) = str::from_utf8(bytes) else { return false };
    // The values become defaults of flags, whose parsers run, too.
    let file = File::parse(text, &COMMAND).map(|file| file.apply(COMMAND.clone()).try_get_matches_from(["serve"]));
    let url = BaseUrl::parse(text).map(|url| assert!(url.origin().starts_with("http") && url.as_str() == text));
    let duration = petstore::domain::time::duration(text).map(|time| assert!(time.as_secs() <= 365_250 * 86_400));
    file.is_ok() || url.is_ok() || duration.is_ok() || Network::parse(text).is_ok()
}

/// A request target: alone, and in a request line, whose fragment must be found.
fn target(bytes: &[u8]) -> bool {
    let line = RequestLine::default();
    line.begin();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for part in [b"GET /", first, second, b"\n"] {
        line.received(part);
    }
    let has_fragment = bytes.split(|byte| *byte == b'\n').next().is_some_and(|line| line.contains(&b'#'));
    assert_eq!(line.take_fragment(), has_fragment);

    let Ok(uri) = Uri::try_from(bytes) else { return false };
    let operation = Target::of(Listener::Store, &Method::GET, uri.path()).at_path();
    let id = operation.and_then(|operation| operation.id_in(uri.path()));
    if let (Some(operation), Some(_)) = (operation, id) {
        assert_eq!(operation.id_in(&operation.path_of(id)), id);
    }
    operation.is_some()
}

// Not part of the program of scripts/fuzz.
#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn corpus_crashes_no_parser() {
        for (name, parse) in ALL.into_iter().filter(|(name, _)| *name != "control") {
            let corpus = std::fs::read(format!("{}/fuzz/corpus/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
            repeat(name, parse, &serde_json::from_slice::<Vec<String>>(&corpus).unwrap());
        }
    }

    #[test]
    fn crashing_parser_is_detected() {
        let inputs = ["", "#a(b~b", "#a(b~c"].map(str::to_owned);
        let found = catch_unwind(|| repeat("control", control, &inputs)).unwrap_err();
        assert_eq!(found.downcast_ref::<String>().unwrap(), "control: crashed by \"#a(b~c\"");
    }

    /// Passes inputs to a parser. Each character of an input stands for one byte.
    fn repeat(name: &str, parse: Parser, inputs: &[String]) {
        let is_accepted = |input: &&String| {
            let bytes: Vec<u8> = input.chars().map(|byte| u8::try_from(byte).unwrap()).collect();
            catch_unwind(|| parse(&bytes)).unwrap_or_else(|_| panic!("{name}: crashed by {input:?}"))
        };
        let accepted = inputs.iter().filter(is_accepted).count();
        assert!(0 < accepted && accepted < inputs.len(), "{name}: {accepted} of {} accepted", inputs.len());
    }
}
