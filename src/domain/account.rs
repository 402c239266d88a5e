//! Accounts: an e-mail address and, where its owner signs in, a password.

use std::fmt;

use argon2::password_hash::phc::{Output, ParamsString, Salt};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHash, Version};

use super::api_key::push_random;
use super::{Invalid, Secret, Timestamp};

/// Identifies an account within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId(pub i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub email: Email,
    pub created_at: Timestamp,
    /// True if the owner can sign in to the console.
    pub has_password: bool,
}

/// An e-mail address: kept as given, equal without regard to case.
///
/// Only its outline is checked (something, an `@`, something; no white space or control characters; at most
/// 254 characters, RFC 5321 section 4.5.3.1.3 as corrected by erratum 1690): whether it exists is known only by writing to it.
#[derive(Clone, Debug)]
pub struct Email(String);

impl Email {
    pub fn parse(address: &str) -> Result<Self, Invalid> {
        let outline = address.rsplit_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
        if !outline || address.chars().any(|c| c.is_whitespace() || c.is_control()) || address.chars().count() > 254 {
            return Err(Invalid("must be an e-mail address, for instance ada@example.com".into()));
        }
        Ok(Self(address.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form under which addresses are compared.
    pub fn folded(&self) -> String {
        self.0.to_lowercase()
    }
}

impl PartialEq for Email {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for Email {}

/// A password that may be set: 12 to 128 characters.
#[derive(Clone, Debug)]
pub struct NewPassword(Secret);

impl NewPassword {
    pub fn parse(password: Secret) -> Result<Self, Invalid> {
        match password.expose().chars().count() {
            12..=128 => Ok(Self(password)),
            length => Err(Invalid(format!("has {length} characters; 12 to 128 are allowed"))),
        }
    }

    /// Generates a password of 20 random base62 characters (119 bits).
    pub fn generate() -> Self {
        let mut password = String::new();
        push_random(&mut password, 20);
        Self(Secret::new(password))
    }

    /// Returns the password as text, to show a generated one to its owner.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Hashes with Argon2id (RFC 9106), 19 MiB, 2 passes, 1 lane: OWASP's password storage cheat sheet.
    ///
    /// Takes tens of milliseconds of CPU: never call it on an async worker.
    pub fn hash(&self, memory: &mut HashingMemory) -> PasswordDigest {
        let params = Params::new(19 * 1024, 2, 1, None).expect("the parameters are valid");
        let hash = memory.hash(&self.0, Salt::generate(), params).expect("the parameters are valid");
        PasswordDigest(hash.to_string())
    }
}

/// What a hash works in: 19 MiB, once there was one. Who makes many keeps it from one to the next; the allocator would
/// put each into another hole of its heaps, of which glibc gives back none.
#[derive(Default)]
pub struct HashingMemory(Vec<Block>);

impl HashingMemory {
    fn hash(&mut self, password: &Secret, salt: Salt, params: Params) -> argon2::password_hash::Result<PasswordHash> {
        let (algorithm, version) = (Algorithm::Argon2id, Version::V0x13);
        let written = ParamsString::try_from(&params)?;
        self.0.resize(params.block_count(), Block::new());
        let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
        let argon2 = Argon2::new(algorithm, version, params);
        let hashed =
            argon2.hash_password_into_with_memory(password.expose().as_bytes(), &salt, &mut output, &mut self.0);
        // With what the first blocks hold, a guess could be checked without the work.
        self.0.fill(Block::new());
        hashed?;
        Ok(PasswordHash {
            algorithm: algorithm.ident(),
            version: Some(version.into()),
            params: written,
            salt: Some(salt),
            hash: Some(Output::new(&output)?),
        })
    }
}

impl fmt::Debug for HashingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

const OF_NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$3/4Qutm6sdRL5ZGRVDYh8A$5ZzKp5jwjEonUV/K/LfmK52+P+eqoLbh7qkOb9SGQog";

/// A password's hash, in the PHC string format.
#[derive(Clone)]
pub struct PasswordDigest(pub String);

impl PasswordDigest {
    /// The digest of random bytes that nobody has kept. Where an address has no password, what was presented is held
    /// against this one, so that the answer takes as long.
    pub fn of_nobody() -> Self {
        Self(OF_NOBODY.to_owned())
    }

    /// Whether `password` is the one that was hashed. Takes as long as hashing does.
    pub fn matches(&self, password: &Secret, memory: &mut HashingMemory) -> bool {
        let kept = PasswordHash::new(&self.0).ok();
        let hashed = kept.as_ref().and_then(|kept| {
            let params = Params::try_from(kept).ok()?;
            memory.hash(password, kept.salt?, params).ok()
        });
        // Outputs are compared in constant time.
        hashed.and_then(|hashed| hashed.hash).is_some_and(|output| kept.and_then(|kept| kept.hash) == Some(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_equal_without_regard_to_case() {
        assert_eq!(Email::parse("Ada@Example.com").unwrap(), Email::parse("ada@example.COM").unwrap());
        for refused in ["", "ada", "@example.com", "ada@", "a da@example.com", "ada@example.com\n"] {
            assert!(Email::parse(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_password_is_hashed_with_the_decided_parameters_and_never_shown() {
        let password = Secret::new("correct horse battery");
        let mut memory = HashingMemory::default();
        let digest = NewPassword::parse(password.clone()).unwrap().hash(&mut memory);
        assert!(digest.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", digest.0);
        assert!(digest.matches(&password, &mut memory));
        let parameters = |digest: &PasswordDigest| digest.0.split('$').take(4).collect::<Vec<_>>().join("$");
        assert_eq!(parameters(&PasswordDigest::of_nobody()), parameters(&digest), "it takes as long");
        assert!(!digest.matches(&Secret::new("correct horse batterz"), &mut memory));
        assert!(memory.0.iter().all(|block| block.as_ref().iter().all(|word| *word == 0)), "nothing is left of them");
        assert_eq!(format!("{password:?}"), "[hidden]");
        for refused in ["x".repeat(11), "x".repeat(129)] {
            assert!(NewPassword::parse(Secret::new(refused)).is_err());
        }
    }
}
