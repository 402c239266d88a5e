//! What makes it safe to send a request again: its key, and the answer that is kept under it.

use std::convert::Infallible;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{AccountId, Invalid, Timestamp};

/// How long an answer is kept.
pub const KEPT_FOR: Duration = Duration::from_hours(24);

/// What a client calls a request by: 1 to 255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(Vec<u8>);

impl IdempotencyKey {
    pub const MAX_CHARACTERS: usize = 255;

    /// Reads the value of a header: the key as it is, or as a quoted string (RFC 8941, section 3.3.3). Both ways of
    /// writing a key are the same key.
    pub fn parse(value: &[u8]) -> Result<Self, Invalid> {
        let key = match value.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted),
            None => Some(value.to_vec()),
        };
        let key =
            key.filter(|key| (1..=Self::MAX_CHARACTERS).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic));
        key.map(Self).ok_or_else(|| {
            let max = Self::MAX_CHARACTERS;
            Invalid(format!("must be 1 to {max} visible ASCII characters, bare or as a quoted string"))
        })
    }
}

/// What stands between the quotes, of which the first is gone already; nothing where that is no quoted string.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.strip_suffix(b"\"")?.iter();
    let mut unquoted = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        unquoted.push(match byte {
            b'"' => return None,
            b'\\' => *bytes.next().filter(|escaped| matches!(escaped, b'"' | b'\\'))?,
            other => other,
        });
    }
    Some(unquoted)
}

/// A request that came with a key, as far as the store needs to know it.
#[derive(Clone, Debug)]
pub struct KeyedRequest {
    pub account: AccountId,
    /// SHA-256 of the account, the operation's name and the key: by it the record is found. So the same key of another
    /// account, or for another operation, is another request.
    pub key_hash: [u8; 32],
    /// SHA-256 of the path and the body: by it, another request under the same key is found out.
    pub fingerprint: [u8; 32],
    /// Time of arrival, by the steady clock.
    pub now: Timestamp,
}

impl KeyedRequest {
    pub fn new(
        account: AccountId,
        operation: &str,
        key: &IdempotencyKey,
        path: &str,
        body: &str,
        now: Timestamp,
    ) -> Self {
        // The account has one length, and neither a name nor a path holds the byte that ends it.
        let key_hash = Sha256::new_with_prefix(account.0.to_be_bytes()).chain_update(operation).chain_update([0]);
        let fingerprint = Sha256::new_with_prefix(path).chain_update([0]).chain_update(body);
        Self {
            account,
            key_hash: key_hash.chain_update(&key.0).finalize().into(),
            fingerprint: fingerprint.finalize().into(),
            now,
        }
    }

    /// Until when its answer is kept.
    pub fn expires_at(&self) -> Timestamp {
        self.now.plus(KEPT_FOR)
    }
}

/// An answer, as it is sent and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// An HTTP status.
    pub status: u16,
    pub location: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
}

impl Answer {
    /// One without a `Location`.
    pub const fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, location: None, body }
    }
}

/// What became of a request with a key; `R` says why one can be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<R = Infallible> {
    /// It was carried out, and its answer is kept.
    First(Answer),
    /// It had been carried out before; this was the answer.
    Again(Answer),
    /// It was not carried out, and nothing is kept.
    Refused(R),
    /// The key belongs to another request.
    Reused,
    /// The same key is being used right now, and it is not known yet what becomes of that.
    InProgress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_bare_and_quoted() {
        let key = |text: &str| IdempotencyKey::parse(text.as_bytes()).unwrap();
        assert_eq!(key("8e03978e-40d5"), key("\"8e03978e-40d5\""));
        assert_eq!(key(r#"a"b\c"#), key(r#""a\"b\\c""#));
        assert_ne!(key("a"), key("A"));
        assert_eq!(key(&"x".repeat(255)), key(&format!("\"{}\"", "x".repeat(255))));
    }

    #[test]
    fn other_values_are_refused() {
        let long = "x".repeat(256);
        let long_and_quoted = format!("\"{long}\"");
        for refused in
            ["", "\"", "\"\"", "\"a", "\"a\"b\"", "\"a\\\"", "\"\\a\"", "\"a\";p", "a b", "\"a b\"", "a\u{e4}"]
                .into_iter()
                .chain([long.as_str(), long_and_quoted.as_str()])
        {
            assert!(IdempotencyKey::parse(refused.as_bytes()).is_err(), "{refused}");
        }
    }

    #[test]
    fn whose_key_it_is_tells_records_apart_and_what_was_asked_for_requests() {
        let request = |account, operation, key: &str, path, body| {
            let (key, now) = (IdempotencyKey::parse(key.as_bytes()).unwrap(), Timestamp::from_milliseconds(0));
            KeyedRequest::new(AccountId(account), operation, &key, path, body, now)
        };
        let first = request(1, "createPet", "a", "/v1/pets", "{}");
        for (account, operation, key) in [(2, "createPet", "a"), (1, "sendMessage", "a"), (1, "createPet", "b")] {
            let other = request(account, operation, key, "/v1/pets", "{}");
            assert_ne!(other.key_hash, first.key_hash, "{account} {operation} {key}");
            assert_eq!(other.fingerprint, first.fingerprint);
        }
        for (path, body) in [("/v1/pets", "{} "), ("/v1/pet", "s{}"), ("/v1/pets/", "{}")] {
            let other = request(1, "createPet", "a", path, body);
            assert_ne!(other.fingerprint, first.fingerprint, "{path} {body}");
            assert_eq!(other.key_hash, first.key_hash);
        }
    }
}
