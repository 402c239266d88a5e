//! Idempotency keys, and how a repeated request is recognized.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{AccountId, Invalid, Timestamp};

/// Lifetime of a stored response.
pub const RETENTION: Duration = Duration::from_hours(24);

/// A client's name for a request: 1 to 255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(Vec<u8>);

impl IdempotencyKey {
    pub const MAX_CHARACTERS: usize = 255;

    /// Parses a header value: a bare key, or a quoted string (RFC 8941, section 3.3.3). Both forms name the same key.
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

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("a key is ASCII")
    }
}

/// Unescapes a quoted string without its opening quote. `None` if it is malformed.
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

/// A request with an idempotency key, as the store identifies it.
#[derive(Clone, Debug)]
pub struct KeyedRequest {
    pub account: AccountId,
    /// SHA-256 of the account, the operation and the key. Identifies the stored response, so accounts and operations do
    /// not share keys.
    pub key_hash: [u8; 32],
    /// SHA-256 of the path and the body. Detects a different request under the same key.
    pub fingerprint: [u8; 32],
    /// Time of arrival, from the steady clock.
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
        // Unambiguous: the account has a fixed length, and operations and paths contain no NUL.
        let key_hash = Sha256::new_with_prefix(account.0.to_be_bytes()).chain_update(operation).chain_update([0]);
        let key_hash = key_hash.chain_update(&key.0).finalize().into();
        let fingerprint = Sha256::new_with_prefix(path).chain_update([0]).chain_update(body).finalize().into();
        Self { account, key_hash, fingerprint, now }
    }

    /// When its stored response expires.
    pub fn expires_at(&self) -> Timestamp {
        self.now.plus(RETENTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_and_quoted_key_are_equal() {
        let key = |text: &str| IdempotencyKey::parse(text.as_bytes()).unwrap();
        assert_eq!(key("8e03978e-40d5"), key("\"8e03978e-40d5\""));
        assert_eq!(key(r#"a"b\c"#), key(r#""a\"b\\c""#));
        assert_ne!(key("a"), key("A"));
        assert_eq!(key(&"x".repeat(255)), key(&format!("\"{}\"", "x".repeat(255))));
    }

    #[test]
    fn malformed_keys_are_rejected() {
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
    fn hash_covers_account_operation_key_and_fingerprint_path_body() {
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
