//! Browser sessions of the console.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{AccountId, Email, Role, Secret, Timestamp, random};

/// Time without use after which a session ends.
pub const IDLE: Duration = Duration::from_hours(2);

/// Maximum lifetime of a session, regardless of use.
pub const ABSOLUTE: Duration = Duration::from_hours(12);

/// Tolerated distance of a session's times into the future, because the steady clocks of processes that share a
/// database differ. Equal to the difference at which a process warns that the system clock was stepped.
pub const SKEW: Duration = Duration::from_mins(1);

/// Resolution of the last use, so that not every page view is a write.
const PRECISION: Duration = Duration::from_mins(1);

/// A session cookie's value: 128 random bits as 32 hexadecimal digits.
#[derive(Clone, Debug)]
pub struct SessionToken(Secret);

impl SessionToken {
    pub fn generate() -> Self {
        Self(Secret::new(format!("{:032x}", u128::from_ne_bytes(random()))))
    }

    /// Returns the hash by which to look up a presented token. `None` if `presented` is not well-formed.
    pub fn hash_presented(presented: &str) -> Option<SessionHash> {
        let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (presented.len() == 32 && presented.bytes().all(is_hex)).then(|| SessionHash(Sha256::digest(presented).into()))
    }

    pub fn hash(&self) -> SessionHash {
        SessionHash(Sha256::digest(self.0.expose()).into())
    }

    /// Returns the plain text, for the cookie.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

/// SHA-256 of a token. The token itself is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHash(pub [u8; 32]);

/// A session to store after a sign-in.
#[derive(Clone, Copy, Debug)]
pub struct NewSession {
    pub hash: SessionHash,
    pub account: AccountId,
    /// Time of sign-in. All times of a session are by the steady clock.
    pub now: Timestamp,
}

/// A stored session with its account. It may have ended: see [`Session::lasts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub hash: SessionHash,
    pub account: AccountId,
    pub email: Email,
    pub role: Role,
    pub account_created_at: Timestamp,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
}

impl Session {
    /// Returns whether the session has not ended at `now`. A session from the future has ended: it was written by a
    /// process that started while the system clock was ahead, and would otherwise last until that clock's time.
    pub fn lasts(&self, now: Timestamp) -> bool {
        let within = |begin: Timestamp, length| begin <= now.plus(SKEW) && now < begin.plus(length);
        within(self.created_at, ABSOLUTE) && within(self.last_used_at, IDLE)
    }

    /// Returns whether a use at `now` must be stored.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now >= self.last_used_at.plus(PRECISION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_128_bits_and_is_found_by_its_hash() {
        let token = SessionToken::generate();
        assert_eq!(token.expose().len(), 32);
        assert_eq!(SessionToken::hash_presented(token.expose()), Some(token.hash()));
        assert_ne!(SessionToken::generate().hash(), token.hash());
        assert_eq!(format!("{token:?}"), "SessionToken([hidden])");
        for refused in ["", "0", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert_eq!(SessionToken::hash_presented(refused), None, "{refused}");
        }
    }

    fn begun_at(begun: Timestamp) -> Session {
        Session {
            hash: SessionToken::generate().hash(),
            account: AccountId(1),
            email: Email::parse("ada@example.com").unwrap(),
            role: Role::Customer,
            account_created_at: begun,
            created_at: begun,
            last_used_at: begun,
        }
    }

    #[test]
    fn session_ends_after_idle_time_and_after_maximum_lifetime() {
        let begun = Timestamp::from_milliseconds(1_795_167_000_123);
        let mut session = begun_at(begun);
        assert!(session.lasts(begun.plus(IDLE).minus(Duration::from_millis(1))));
        assert!(!session.lasts(begun.plus(IDLE)));

        let last = begun.plus(ABSOLUTE).minus(Duration::from_millis(1));
        session.last_used_at = last;
        assert!(session.lasts(last));
        assert!(!session.lasts(begun.plus(ABSOLUTE)));
    }

    #[test]
    fn session_from_the_future_has_ended() {
        let begun = Timestamp::from_milliseconds(1_795_167_000_123);
        let session = begun_at(begun);
        assert!(session.lasts(begun.minus(SKEW)));
        assert!(!session.lasts(begun.minus(SKEW).minus(Duration::from_millis(1))));
        let used = Session { last_used_at: begun.plus(Duration::from_secs(60 * 60)), ..session };
        assert!(!used.lasts(begun));
    }
}
