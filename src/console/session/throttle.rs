//! Limits on attempts to enter a password, per network address and account or per session, and on new keys.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};

use crate::domain::{AccountId, Email, SessionHash, Timestamp, TokenBucket};

/// Maximum number of addresses, accounts and sessions that are remembered. Beyond it, some are forgotten, those with a
/// single attempt before those with several (quick_cache evicts like S3-FIFO).
const REMEMBERED: usize = 20_000;

/// In milliseconds.
const PER_ADDRESS: TokenBucket = TokenBucket { capacity: 30, refill: 20_000 };
const PER_ACCOUNT: TokenBucket = TokenBucket { capacity: 10, refill: 60_000 };
const PER_SESSION: TokenBucket = PER_ACCOUNT;
const NEW_KEYS: TokenBucket = TokenBucket { capacity: 60, refill: 10_000 };

/// For each address, account and session, the time at which its bucket will be full.
#[derive(Debug)]
pub struct Throttle(Cache<[u8; 32], Arc<Mutex<u64>>>);

impl Throttle {
    pub fn new() -> Self {
        Self(Cache::new(REMEMBERED))
    }

    /// Counts an attempt to sign in or up. The error is the time to wait until the next one.
    ///
    /// Addresses without an account count too, so the limit reveals nothing about accounts.
    pub fn count(&self, from: IpAddr, email: &Email, now: Timestamp) -> Result<(), Duration> {
        self.take(&format!("address {}", network(from)), PER_ADDRESS, now)?;
        self.take(&format!("account {}", email.folded()), PER_ACCOUNT, now)
    }

    /// Counts an attempt of a signed-in user, like [`Self::count`]. Others cannot use up these attempts.
    pub fn count_in_session(&self, session: SessionHash, now: Timestamp) -> Result<(), Duration> {
        self.take(&format!("session {:?}", session.0), PER_SESSION, now)
    }

    /// Counts a new key of an account, like [`Self::count`].
    pub fn count_new_key(&self, account: AccountId, now: Timestamp) -> Result<(), Duration> {
        self.take(&format!("keys of {}", account.0), NEW_KEYS, now)
    }

    fn take(&self, subject: &str, bucket: TokenBucket, now: Timestamp) -> Result<(), Duration> {
        let key: [u8; 32] = Sha256::digest(subject).into();
        let Ok(full_at) = self.0.get_or_insert_with(&key, || Ok::<_, std::convert::Infallible>(Arc::default()));
        let now = u64::try_from(now.as_milliseconds()).unwrap_or(0);
        let mut full_at = full_at.lock();
        let taken = bucket.take(*full_at, now);
        *full_at = taken.full_at;
        taken.is_allowed.then_some(()).ok_or(Duration::from_millis(taken.next))
    }
}

/// Returns what counts as one address. For IPv6, this is the /64 network, the least that a provider assigns to a customer.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn email(address: &str) -> Email {
        Email::parse(address).unwrap()
    }

    #[test]
    fn account_has_ten_attempts_and_then_one_a_minute() {
        let throttle = Throttle::new();
        for attempt in 0..10 {
            let from = IpAddr::from([10, 0, 0, attempt]);
            assert_eq!(throttle.count(from, &email("ada@example.com"), NOW), Ok(()), "{attempt}");
        }
        assert_eq!(throttle.count(OTHER, &email("ADA@example.com"), NOW), Err(Duration::from_secs(60)));
        assert_eq!(throttle.count(OTHER, &email("grace@example.com"), NOW), Ok(()));
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(throttle.count(OTHER, &email("ada@example.com"), later), Ok(()));
        assert!(throttle.count(OTHER, &email("ada@example.com"), later).is_err());
    }

    #[test]
    fn address_has_thirty_attempts_for_all_accounts() {
        let throttle = Throttle::new();
        let count =
            |from: &str, who: u32| throttle.count(from.parse().unwrap(), &email(&format!("{who}@example.com")), NOW);
        for who in 0..30 {
            assert_eq!(count(&format!("2001:db8::{who}"), who), Ok(()), "{who}");
        }
        assert_eq!(count("2001:db8::ffff", 99), Err(Duration::from_secs(20)));
        assert_eq!(count("2001:db8:0:1::1", 99), Ok(()), "another network");
        assert_eq!(count("::ffff:192.0.2.1", 98), Ok(()));
    }
}
