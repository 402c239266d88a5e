//! How often somebody may try to sign in or up: per address of the network, and per account.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};

use crate::domain::{Email, Timestamp};

/// How many addresses and accounts are remembered. Beyond, those that have not tried for longest begin anew.
const REMEMBERED: usize = 20_000;

/// So many at once, and then one more in each such time.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: i64,
    one_each: Duration,
}

const PER_ADDRESS: Allowance = Allowance { burst: 30, one_each: Duration::from_secs(20) };
const PER_ACCOUNT: Allowance = Allowance { burst: 10, one_each: Duration::from_secs(60) };

/// The generic cell rate algorithm (ITU-T I.371): of each subject, only when its allowance will be whole again.
#[derive(Debug)]
pub struct LoginThrottle(Cache<[u8; 16], Arc<AtomicI64>>);

impl LoginThrottle {
    pub fn new() -> Self {
        Self(Cache::new(REMEMBERED))
    }

    /// Counts an attempt, or says how long to wait for the next one.
    ///
    /// An address that nobody has signed up with counts as any other: the limit tells nothing about accounts.
    pub fn count(&self, from: Option<IpAddr>, email: &Email, now: Timestamp) -> Result<(), Duration> {
        if let Some(from) = from {
            self.take(&format!("address {}", network(from)), PER_ADDRESS, now)?;
        }
        self.take(&format!("account {}", email.folded()), PER_ACCOUNT, now)
    }

    fn take(&self, subject: &str, allowance: Allowance, now: Timestamp) -> Result<(), Duration> {
        let digest = Sha256::digest(subject);
        let key = std::array::from_fn(|position| digest[position]);
        let whole_at = self.0.get_or_insert_with(&key, || Ok::<_, std::convert::Infallible>(Arc::default()));
        let Ok(whole_at) = whole_at;
        let now = now.as_milliseconds();
        let each = allowance.one_each.as_millis() as i64;
        let latest = now + each * allowance.burst;
        let after = |whole_at: i64| whole_at.max(now) + each;
        let counted = whole_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(after(at).min(latest)));
        let (Ok(before) | Err(before)) = counted;
        match after(before) - latest {
            ..=0 => Ok(()),
            wait => Err(Duration::from_millis(wait.unsigned_abs())),
        }
    }
}

/// What counts as one address: of IPv6, the /64 that a provider gives to one customer at least.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

    fn email(address: &str) -> Email {
        Email::parse(address).unwrap()
    }

    #[test]
    fn an_account_has_ten_attempts_and_then_one_a_minute_from_wherever_they_come() {
        let attempts = LoginThrottle::new();
        for attempt in 0..10 {
            let from = IpAddr::from([10, 0, 0, attempt]);
            assert_eq!(attempts.count(Some(from), &email("ada@example.com"), NOW), Ok(()), "{attempt}");
        }
        assert_eq!(attempts.count(None, &email("ADA@example.com"), NOW), Err(Duration::from_secs(60)));
        assert_eq!(attempts.count(None, &email("grace@example.com"), NOW), Ok(()));
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(attempts.count(None, &email("ada@example.com"), later), Ok(()));
        assert!(attempts.count(None, &email("ada@example.com"), later).is_err());
    }

    #[test]
    fn an_address_has_thirty_attempts_whatever_account_they_are_for() {
        let attempts = LoginThrottle::new();
        let count = |from: &str, who: u32| {
            attempts.count(Some(from.parse().unwrap()), &email(&format!("{who}@example.com")), NOW)
        };
        for who in 0..30 {
            assert_eq!(count(&format!("2001:db8::{who}"), who), Ok(()), "{who}");
        }
        assert_eq!(count("2001:db8::ffff", 99), Err(Duration::from_secs(20)));
        assert_eq!(count("2001:db8:0:1::1", 99), Ok(()), "that is another network");
        assert_eq!(count("::ffff:192.0.2.1", 98), Ok(()));
    }
}
