//! Rate limits of accounts, and their headers (draft-ietf-httpapi-ratelimit-headers-11).
//!
//! An account has a token bucket with as many tokens as the limit allows, which refills within one window. Only buckets
//! that may not be full are stored, so memory is bounded by the number of accounts with requests in the last two windows.
//!
//! Times are milliseconds multiplied by the number of requests in a window. On this scale a token comes back after as many
//! units as the window has milliseconds, so limits that do not divide their window are exact too.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::api::error::{ApiError, Code};
use crate::domain::{AccountId, Invalid, Taken, TokenBucket};
use crate::runtime::clock::Clock;
use crate::telemetry::metrics::Counter;

pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The units as they are given and shown, and their seconds.
const UNITS: [(&str, &str, u64); 3] = [("s", "second", 1), ("min", "minute", 60), ("h", "hour", 60 * 60)];

/// Number of requests per window: also the maximum burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// 1 to 1,000,000.
    pub requests: u32,
    pub window: Duration,
}

impl RateLimit {
    /// Parses a number, a slash, and `s`, `min` or `h`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid("a rate limit is 1 to 1000000 requests per s, min or h, for instance 600/min".into());
        let (requests, unit) = text.split_once('/').ok_or_else(invalid)?;
        let (.., seconds) = UNITS.into_iter().find(|(given, ..)| *given == unit).ok_or_else(invalid)?;
        let digits = requests.bytes().all(|byte| byte.is_ascii_digit());
        let requests = requests.parse().ok().filter(|requests| digits && (1..=1_000_000).contains(requests));
        Ok(Self { requests: requests.ok_or_else(invalid)?, window: Duration::from_secs(seconds) })
    }
}

/// Formats as `600 requests per minute`.
impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = if self.requests == 1 { "request" } else { "requests" };
        let unit =
            UNITS.into_iter().find(|(.., seconds)| *seconds == self.window.as_secs()).map_or("", |(_, unit, _)| unit);
        write!(f, "{} {requests} per {unit}", self.requests)
    }
}

/// Number of shards, so that threads rarely wait for each other, and only briefly while a map grows or is cleaned.
const PARTS: usize = 64;

/// The rate limit and the state of each account.
#[derive(Debug)]
pub struct RateLimits {
    limit: RateLimit,
    clock: Clock,
    policy: HeaderValue,
    pub refused: Counter,
    parts: [Mutex<Part>; PARTS],
}

/// Remaining requests of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub is_allowed: bool,
    /// Number of requests that are allowed now.
    pub remaining: u64,
    /// Seconds until one more is allowed, rounded up.
    pub seconds: u64,
}

/// Rejects a request that exceeds the limit, if there is one.
pub fn check(limits: Option<&RateLimits>, quota: Option<Quota>) -> Result<(), ApiError> {
    match limits.zip(quota) {
        Some((limits, quota)) if !quota.is_allowed => {
            limits.refused.increment();
            Err(limits.exceeded())
        }
        _ => Ok(()),
    }
}

/// Writes `RateLimit`, `RateLimit-Policy` and, if the request was rejected, `Retry-After`. Nothing if it was not counted.
pub fn write_headers(limits: Option<&RateLimits>, quota: Option<Quota>, headers: &mut HeaderMap) {
    let Some((limits, quota)) = limits.zip(quota) else { return };
    let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (remaining, seconds) = (remaining.format(quota.remaining), seconds.format(quota.seconds));
    let value = HeaderValue::try_from([r#""default";r="#, remaining, ";t=", seconds].concat());
    headers.insert(RATE_LIMIT, value.expect("numbers are visible ASCII characters"));
    headers.insert(RATE_LIMIT_POLICY, limits.policy.clone());
    if !quota.is_allowed {
        headers.insert(RETRY_AFTER, HeaderValue::from(quota.seconds));
    }
}

impl RateLimits {
    pub fn new(limit: RateLimit, clock: Clock) -> Self {
        let policy = format!(r#""default";q={};w={}"#, limit.requests, limit.window.as_secs());
        let policy = HeaderValue::try_from(policy).expect("a policy has visible ASCII characters only");
        Self { limit, clock, policy, refused: Counter::default(), parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns the error for a request that exceeds the limit.
    pub fn exceeded(&self) -> ApiError {
        let message = format!("This account may send {}. Try again after the time in `Retry-After`.", self.limit);
        ApiError::new(Code::RateLimited, message)
    }

    /// Counts a request of `account`.
    pub fn take(&self, account: AccountId) -> Quota {
        let part = &self.parts[account.0.unsigned_abs() as usize % PARTS];
        let requests = u64::from(self.limit.requests);
        let bucket = TokenBucket { capacity: requests, refill: self.limit.window.as_millis() as u64 };
        let now = self.clock.steady().as_milliseconds().unsigned_abs() * requests;
        let Taken { is_allowed, remaining, next, .. } = part.lock().take(account, bucket, now);
        Quota { is_allowed, remaining, seconds: next.div_ceil(1_000 * requests) }
    }

    /// Number of accounts in memory: those whose buckets may not be full.
    pub fn remembered(&self) -> usize {
        self.parts.iter().map(|part| part.lock().full_at.len()).sum()
    }
}

/// A shard: when the buckets of its accounts are full again. Full buckets are removed once per window.
#[derive(Debug, Default)]
struct Part {
    cleaned_at: u64,
    full_at: HashMap<AccountId, u64>,
}

impl Part {
    /// Takes a token out of the account's bucket.
    fn take(&mut self, account: AccountId, bucket: TokenBucket, now: u64) -> Taken {
        // The times of two threads may arrive in the wrong order.
        if now.saturating_sub(self.cleaned_at) >= bucket.window() {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.full_at.shrink_to_fit();
            self.cleaned_at = now;
        }
        let full_at = self.full_at.entry(account).or_insert(now);
        let taken = bucket.take(*full_at, now);
        *full_at = taken.full_at;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;

    const ADA: AccountId = AccountId(1);
    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

    fn limits(limit: &str) -> (RateLimits, Clock) {
        let clock = Clock::fixed(NOW);
        (RateLimits::new(RateLimit::parse(limit).unwrap(), clock.clone()), clock)
    }

    fn allowed(limits: &RateLimits, account: AccountId, asked: u64) -> u64 {
        (0..asked).filter(|_| limits.take(account).is_allowed).count() as u64
    }

    #[test]
    fn limit_allows_a_burst_and_then_one_by_one() {
        let (limits, clock) = limits("60/min");
        assert_eq!(limits.take(ADA), Quota { is_allowed: true, remaining: 59, seconds: 1 });
        assert_eq!(allowed(&limits, ADA, 100), 59);
        assert_eq!(limits.take(ADA), Quota { is_allowed: false, remaining: 0, seconds: 1 });
        assert_eq!(allowed(&limits, AccountId(2), 100), 60, "another account has its own");
        clock.set(NOW.plus(Duration::from_millis(999)));
        assert_eq!(allowed(&limits, ADA, 1), 0);
        clock.set(NOW.plus(Duration::from_secs(1)));
        assert_eq!(allowed(&limits, ADA, 2), 1);
        clock.set(NOW.plus(Duration::from_secs(61)));
        assert_eq!(allowed(&limits, ADA, 100), 60);
    }

    #[test]
    fn request_after_the_stated_wait_is_allowed() {
        for limit in ["7/h", "7/min", "1/s", "1000000/s"] {
            let (limits, clock) = limits(limit);
            while limits.take(ADA).is_allowed {}
            let wait = limits.take(ADA).seconds;
            clock.set(NOW.plus(Duration::from_secs(wait)));
            assert!(limits.take(ADA).is_allowed, "{limit}: {wait} s");
        }
    }

    #[test]
    fn long_term_rate_is_exact_for_any_limit() {
        for (limit, requests, window) in [("7/s", 7, 1_000), ("7/min", 7, 60_000), ("997/h", 997, 3_600_000)] {
            let end = 50 * window;
            let (limits, clock) = limits(limit);
            let mut count = allowed(&limits, ADA, requests);
            let step = window / requests / 3;
            for time in (0..=end).step_by(step as usize) {
                clock.set(NOW.plus(Duration::from_millis(time)));
                count += allowed(&limits, ADA, 2);
            }
            let exact = requests + end * requests / window;
            assert!(count.abs_diff(exact) <= 1, "{limit}: {count} for {exact}");
        }
    }

    #[test]
    fn wall_clock_jumps_neither_lock_out_nor_reset_accounts() {
        let day = Duration::from_hours(24);
        for jump in [NOW.minus(day), NOW.plus(day)] {
            let (limits, clock) = limits("60/min");
            assert_eq!(allowed(&limits, ADA, 100), 60);
            clock.jump_to(jump);
            assert_eq!(limits.take(ADA), Quota { is_allowed: false, remaining: 0, seconds: 1 });
            clock.advance(Duration::from_secs(60));
            assert_eq!(allowed(&limits, ADA, 100), 60);
        }
    }

    #[test]
    fn only_full_buckets_are_dropped() {
        let (limits, clock) = limits("60/min");
        let accounts = (0..10_000).map(AccountId);
        assert!(accounts.clone().all(|account| limits.take(account).remaining == 59));
        clock.set(NOW.plus(Duration::from_secs(59)));
        assert_eq!(allowed(&limits, ADA, 100), 60, "59 and what has come back");
        for minute in 1..=3 {
            clock.set(NOW.plus(Duration::from_secs(60 * minute)));
            // One account of each part goes on asking.
            (0..PARTS as i64).for_each(|account| assert!(limits.take(AccountId(account)).is_allowed));
        }
        assert_eq!(limits.remembered(), PARTS);
    }

    #[test]
    fn rate_limit_is_a_number_per_unit_of_time() {
        let limit = |requests, seconds| RateLimit { requests, window: Duration::from_secs(seconds) };
        assert_eq!(RateLimit::parse("600/min"), Ok(limit(600, 60)));
        assert_eq!(RateLimit::parse("1/s"), Ok(limit(1, 1)));
        assert_eq!(RateLimit::parse("1000000/h"), Ok(limit(1_000_000, 3_600)));
        assert_eq!(RateLimit::parse("1/h").unwrap().to_string(), "1 request per hour");
        for refused in
            ["", "600", "600/", "/min", "0/s", "-1/s", "+1/s", "1000001/s", "1.5/s", "6/m", "6/d", "6 /s", "6/min "]
        {
            assert!(RateLimit::parse(refused).is_err(), "{refused}");
        }
    }
}
