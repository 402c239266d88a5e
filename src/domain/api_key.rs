//! API keys: format, checksum, hash and stored records.

use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::secret::{BASE62, push_random};
use super::{AccountId, Deployment, Email, Role, Secret, Text, Timestamp, names};

const PREFIX: usize = "pet_live_".len();
const RANDOM: usize = 32;
const CHECKSUM: usize = 6;
const LENGTH: usize = PREFIX + RANDOM + CHECKSUM;

/// A generated API key: `pet_live_` or `pet_test_`, 32 random base62 characters (190 bits), and their CRC-32 in base62.
#[derive(Clone, Debug)]
pub struct ApiKey(Secret);

impl ApiKey {
    /// Generates a key from the operating system's random bytes.
    pub fn generate(deployment: Deployment) -> Self {
        let mut key = String::with_capacity(LENGTH);
        key.push_str(prefix(deployment));
        push_random(&mut key, RANDOM);
        let checksum = checksum(&key.as_bytes()[PREFIX..]);
        key.extend(checksum.map(char::from));
        Self(Secret::new(key))
    }

    /// Returns the hash by which to look up a presented key. `None` if `presented` is not a well-formed key of
    /// `deployment`: the checksum keeps guesses and typing errors away from the database.
    pub fn hash_presented(presented: &[u8], deployment: Deployment) -> Option<KeyHash> {
        let well_formed = presented.len() == LENGTH
            && presented.starts_with(prefix(deployment).as_bytes())
            && presented[PREFIX + RANDOM..] == checksum(&presented[PREFIX..PREFIX + RANDOM]);
        well_formed.then(|| KeyHash(Sha256::digest(presented).into()))
    }

    /// Parses a key that its user has chosen. `None` if it is not a well-formed key of `deployment`.
    pub fn parse(text: &str, deployment: Deployment) -> Option<Self> {
        Self::hash_presented(text.as_bytes(), deployment).map(|_| Self(Secret::new(text.to_owned())))
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash(Sha256::digest(self.0.expose()).into())
    }

    /// Returns the plain text, to show it once to its owner.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Returns the prefix and the last 4 characters, to distinguish keys in a list.
    pub fn hint(&self) -> String {
        let key = self.0.expose();
        format!("{}…{}", &key[..PREFIX], &key[LENGTH - 4..])
    }
}

/// SHA-256 of a key. The key itself is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// Display name of a key: 1 to 100 characters, not only white space, no control characters.
pub type KeyName = Text<100, false>;

/// Id of a key, unique within its database. Not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct KeyId(pub i64);

/// A key to store.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub account: AccountId,
    pub name: KeyName,
    pub hash: KeyHash,
    pub hint: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// True if requests with the key may only read.
    pub read_only: bool,
    /// The failures that requests with the key get, as in `Prefer`. Only on staging.
    pub prefer: Option<String>,
}

impl NewKey {
    pub fn of(key: &ApiKey, account: AccountId, name: KeyName, now: Timestamp, lifetime: Option<Duration>) -> Self {
        let (hash, hint) = (key.hash(), key.hint());
        let expires_at = lifetime.map(|lifetime| now.plus(lifetime));
        Self { account, name, hash, hint, created_at: now, expires_at, read_only: false, prefer: None }
    }
}

/// Replacement of a key by its successor.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Hash of the new key.
    pub hash: KeyHash,
    /// Hint of the new key.
    pub hint: String,
    pub now: Timestamp,
    /// When the old key stops working, unless it expires earlier.
    pub old_until: Timestamp,
}

impl Rotation {
    /// The old key works alongside the new `key` for the time of `overlap`.
    pub fn to(key: &ApiKey, now: Timestamp, overlap: Duration) -> Self {
        Self { hash: key.hash(), hint: key.hint(), now, old_until: now.plus(overlap) }
    }
}

/// The part of a key that authentication needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    pub id: KeyId,
    pub account: AccountId,
    /// True also if the account is suspended. Such a key grants nothing. Only its account is of interest.
    pub is_revoked: bool,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    /// The role of the account.
    pub role: Role,
    pub read_only: bool,
    pub prefer: Option<String>,
}

impl KeyGrant {
    pub const fn owner(&self, is_key_inactive: bool) -> KeyOwner {
        KeyOwner { account: self.account, key: self.id, is_key_inactive }
    }
}

/// A key and the account that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    pub account: AccountId,
    pub key: KeyId,
    /// True if the key is revoked or has expired.
    pub is_key_inactive: bool,
}

names! {
    /// State of a key. Only active keys work. Queries of the database select by the code.
    pub enum KeyState {
        Active = "active",
        Expired = "expired",
        Revoked = "revoked",
    }
}

/// A key as listed for its owner, and as the command line prints it in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRecord {
    pub id: KeyId,
    pub name: String,
    pub account: Email,
    pub hint: String,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub read_only: bool,
    pub prefer: Option<String>,
}

impl KeyRecord {
    pub fn state(&self, now: Timestamp) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(expiry)) if expiry <= now => KeyState::Expired,
            (None, _) => KeyState::Active,
        }
    }

    /// Returns the time of the last use, no earlier than the creation: the stored time is the start of a minute, which
    /// may precede the creation.
    pub fn last_use(&self) -> Option<Timestamp> {
        self.last_used_at.map(|used| used.max(self.created_at))
    }
}

const fn prefix(deployment: Deployment) -> &'static str {
    match deployment {
        Deployment::Production => "pet_live_",
        Deployment::Staging => "pet_test_",
    }
}

/// CRC-32/ISO-HDLC (as in zlib) in base62, most significant digit first. Six digits suffice: 62⁶ exceeds 2³².
fn checksum(random: &[u8]) -> [u8; CHECKSUM] {
    let mut rest = crc32fast::hash(random);
    let mut digits = [0; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_key_is_well_formed_for_its_deployment_only() {
        for (deployment, other) in
            [(Deployment::Production, Deployment::Staging), (Deployment::Staging, Deployment::Production)]
        {
            let key = ApiKey::generate(deployment);
            assert_eq!(key.expose().len(), 47);
            assert_eq!(ApiKey::hash_presented(key.expose().as_bytes(), deployment), Some(key.hash()));
            assert_eq!(ApiKey::hash_presented(key.expose().as_bytes(), other), None);
            assert_eq!(key.hint(), format!("{}…{}", prefix(deployment), &key.expose()[43..]));
            assert_eq!(format!("{key:?}"), "ApiKey([hidden])");
        }
    }

    #[test]
    fn key_with_a_changed_character_has_no_hash() {
        let key = ApiKey::generate(Deployment::Staging);
        for position in 0..key.expose().len() {
            let mut changed = key.expose().as_bytes().to_vec();
            changed[position] = if changed[position] == b'x' { b'y' } else { b'x' };
            assert_eq!(ApiKey::hash_presented(&changed, Deployment::Staging), None, "{position}");
        }
    }

    #[test]
    fn checksum_is_crc_32_in_base62() {
        // The check value of CRC-32/ISO-HDLC for "123456789" is 0xCBF43926 = 3421780262.
        assert_eq!(&checksum(b"123456789"), b"3jZRME");
        let value = b"3jZRME"
            .iter()
            .fold(0_u64, |sum, digit| sum * 62 + BASE62.iter().position(|c| c == digit).unwrap() as u64);
        assert_eq!(value, 0xCBF4_3926);
    }
}
