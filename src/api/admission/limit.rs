//! Rate limits, written as `600/min`.

use std::time::Duration;

use crate::domain::Invalid;

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
impl std::fmt::Display for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let requests = if self.requests == 1 { "request" } else { "requests" };
        let unit =
            UNITS.into_iter().find(|(.., seconds)| *seconds == self.window.as_secs()).map_or("", |(_, unit, _)| unit);
        write!(f, "{} {requests} per {unit}", self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
