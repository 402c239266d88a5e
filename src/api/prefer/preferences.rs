//! The preferences that a staging service understands: failures to simulate, and the requests that get them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use jiff::civil::Date;
use quick_cache::sync::Cache;

use super::header;
use super::preference::{Dropped, Preference};
use crate::api::documents::documented_errors::{DocumentedError, error_with_code, error_with_status};
use crate::api::input::query_and_body::abridge;
use crate::api::operations::Operation;
use crate::domain::{AccountId, Deployment, Invalid, KeyId, Timestamp};

/// Statuses that a proxy in front of the service sends, which the OpenAPI document does not list.
pub const OF_PROXIES: [StatusCode; 2] = [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

const NO_EFFECT: &str = "has no effect: add a failure such as code=503";

/// The preferences that choose a portion of the requests. Only the first one of this order counts.
const PORTIONS: [&str; 3] = ["rate", "every", "first"];

/// Maximum length of the preferences of a key, in bytes.
const LENGTH: usize = 255;

/// The start of a day in UTC. jiff's timestamps end before that of 9999-12-31.
pub fn midnight(day: Date) -> Timestamp {
    let since_1970 = day.duration_since(jiff::civil::date(1970, 1, 1));
    Timestamp::from_milliseconds(since_1970.as_secs() * 1_000)
}

/// Returns whether a day has ended. A removed operation stays removed, so such a date has no effect.
fn has_passed(day: Date, now: Timestamp) -> bool {
    midnight(day).plus(Duration::from_hours(24)) <= now
}

/// The preferences of a request, or those of its key.
#[derive(Debug)]
pub struct Preferences {
    /// Those that are well-formed, in their order, each name once.
    pub given: Vec<Preference>,
    /// The reason why another one is ignored.
    pub ignored: Option<Invalid>,
}

impl Preferences {
    /// The preferences of a request at `now`, from its `Prefer` line.
    pub fn of(line: &str, now: Timestamp) -> Self {
        let (mut given, mut ignored) = (Vec::new(), None);
        // Not all names, because a request may have thousands.
        let mut known = Vec::new();
        for (name, value, has_parameters) in header::parse(line) {
            if known.contains(&name) {
                continue;
            }
            let parsed = Preference::parse(&name, &value);
            if parsed.is_some() {
                known.push(name.clone());
            }
            let why = match parsed {
                None => format!("has the unknown preference {}", abridge(&name)),
                Some(Err(Invalid(why))) => why,
                Some(Ok(_)) if has_parameters => {
                    format!("has parameters after {name}: separate preferences by commas")
                }
                Some(Ok(Preference::Date(day))) if has_passed(day, now) => format!("has a {name} that has passed"),
                Some(Ok(preference)) => {
                    given.push(preference);
                    continue;
                }
            };
            ignored.get_or_insert(Invalid(why));
        }
        let portions = PORTIONS.into_iter().filter(|name| given.iter().any(|it| it.portion() == Some(*name)));
        if let [kept, other, ..] = portions.collect::<Vec<_>>()[..] {
            given.retain(|it| it.portion().is_none_or(|name| name == kept));
            ignored.get_or_insert_with(|| Invalid(format!("has both {kept} and {other}")));
        }
        let has = |is_one: fn(&Preference) -> bool| given.iter().any(is_one);
        let has_error = has(|it| matches!(it, Preference::Code(_) | Preference::Error(_)));
        let has_body = has(|it| matches!(it, Preference::Body(_)));
        let has_retry_after = has(|it| matches!(it, Preference::RetryAfter(_)));
        let has_seed_only = has(|it| matches!(it, Preference::Seed(_))) && !has(|it| matches!(it, Preference::Rate(_)));
        let useless = [
            (has_error && has_body, "has both an error and body, which breaks a success"),
            (!has_error && has_retry_after, "has retry-after without an error such as code=503"),
            (!has(Preference::is_effect) && has(Preference::selects), NO_EFFECT),
            (has_seed_only, "has a seed without a rate"),
        ];
        let why = useless.into_iter().find_map(|(is_useless, why)| is_useless.then_some(why));
        let ignored = ignored.or_else(|| why.map(|why| Invalid(why.into())));
        Self { given, ignored }
    }

    /// Rejects preferences that would be ignored, if the request asks for that (RFC 7240, section 4.4). `reject` returns the
    /// reason why one does not apply.
    pub fn check_strictly(&self, reject: impl Fn(&Preference) -> Option<String>) -> Result<(), Invalid> {
        if !self.given.contains(&Preference::Strict(true)) {
            return Ok(());
        }
        if let Some(ignored) = &self.ignored {
            return Err(ignored.clone());
        }
        match self.given.iter().find_map(|it| Some((it, reject(it)?))) {
            Some((useless, why)) => Err(Invalid(format!("has {useless}, which {why}"))),
            None => Ok(()),
        }
    }

    /// The preferences stored with a key. A date that has passed is ignored.
    pub fn of_key(stored: &str, now: Timestamp) -> Self {
        Self { ignored: None, ..Self::of(stored, now) }
    }

    /// Checks the preferences of a new key, and returns them as they are stored.
    ///
    /// # Errors
    ///
    /// Rejects preferences that would be ignored in every request, and all preferences in production.
    pub fn for_key(text: &str, deployment: Deployment, now: Timestamp) -> Result<String, Invalid> {
        if deployment == Deployment::Production {
            return Err(Invalid("is only possible on staging: production simulates no failures".into()));
        }
        let mut preferences = Self::of(text, now);
        if let Some(invalid) = preferences.ignored.take() {
            return Err(invalid);
        }
        let given = &preferences.given;
        let only = preferences.find(Preference::operation);
        let operations: Vec<_> = only.map_or_else(|| Operation::documented().collect(), |only| vec![only]);
        let is_useless = |it: &&Preference| !operations.iter().any(|on| preferences.applies(it, *on, on.method()));
        if let Some(useless) = given.iter().find(is_useless) {
            let of = only.map(|only| format!(" of {}", only.id())).unwrap_or_default();
            return Err(Invalid(format!("has {useless}, which {}{of}", useless.why_useless())));
        }
        if !given.iter().any(Preference::is_effect) {
            return Err(Invalid(NO_EFFECT.into()));
        }
        let stored = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if stored.len() > LENGTH {
            return Err(Invalid(format!("is longer than {LENGTH} characters")));
        }
        Ok(stored)
    }

    pub fn find<T>(&self, choose: impl Fn(&Preference) -> Option<T>) -> Option<T> {
        self.given.iter().find_map(choose)
    }

    /// The day by which a request at `now` is answered.
    pub fn day(&self, now: Timestamp) -> Option<Timestamp> {
        self.find(|it| match it {
            Preference::Date(day) if !has_passed(*day, now) => Some(midnight(*day)),
            _ => None,
        })
    }

    /// Returns whether the preferences apply to the `number`th request, counted from 0.
    pub fn choose(&self, number: u64) -> bool {
        let seed = self.find(|it| if let Preference::Seed(seed) = it { Some(*seed) } else { None }).unwrap_or(0);
        self.given.iter().all(|preference| match preference {
            Preference::Rate(share) => fraction(seed, number) < *share,
            Preference::Every(every) => (number + 1).is_multiple_of(*every),
            Preference::First(first) => number < *first,
            _ => true,
        })
    }

    /// The response instead of that of the operation. `None` if the operation is executed.
    pub fn failure(&self, operation: Operation) -> Option<Failure> {
        let find = |is_one: fn(&Preference) -> bool| {
            self.given.iter().filter(|it| is_one(it)).find_map(|it| Failure::of(it, operation))
        };
        // The code names one error exactly, so it comes before the status.
        find(|it| matches!(it, Preference::Error(_))).or_else(|| find(|it| matches!(it, Preference::Code(_))))
    }

    /// Returns whether a request to the operation can get the effect of one of the preferences. A response to HEAD has no body.
    pub fn applies(&self, preference: &Preference, operation: Operation, method: &Method) -> bool {
        match preference {
            Preference::Drop(Dropped::Body) | Preference::Pace(_) => *method != Method::HEAD,
            Preference::Body(_) => *method != Method::HEAD && self.failure(operation).is_none(),
            Preference::RetryAfter(_) => {
                matches!(self.failure(operation), Some(Failure::Error(error)) if error.has_retry_after)
            }
            Preference::Code(_) | Preference::Error(_) => Failure::of(preference, operation).is_some(),
            _ => true,
        }
    }
}

/// Maximum number of counters. If more keys are in use, the count of a rare one may begin again.
const COUNTERS: usize = 10_000;

/// The requests that share a counter: those of an account and a key (`None` for a user of the console), to one operation
/// (`None` for all). With `first`, the number of resets before them too, so that a reset begins another count.
pub type Counted = (AccountId, Option<KeyId>, Option<Operation>, Option<i64>);

/// Counters of the requests that `rate`, `every` and `first` choose from, since the start of the process.
#[derive(Debug)]
pub struct Simulator(Cache<Counted, Arc<AtomicU64>>);

impl Simulator {
    pub fn new() -> Self {
        Self(Cache::new(COUNTERS))
    }

    /// Counts a request. Returns the number of earlier ones.
    pub fn count(&self, counted: Counted) -> u64 {
        let Ok(earlier) = self.0.get_or_insert_with(&counted, || Ok::<_, Infallible>(Arc::default()));
        earlier.fetch_add(1, Ordering::Relaxed)
    }
}

/// A response instead of that of the operation.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    Error(&'static DocumentedError),
    /// A proxy's.
    Gateway(StatusCode),
}

impl Failure {
    /// Returns the failure of an operation that a preference names. `None` if it names none, or none of the operation.
    fn of(preference: &Preference, operation: Operation) -> Option<Self> {
        match preference {
            Preference::Code(status) if OF_PROXIES.contains(status) => Some(Self::Gateway(*status)),
            Preference::Code(status) => error_with_status(operation, *status).map(Self::Error),
            Preference::Error(code) => error_with_code(operation, *code).map(Self::Error),
            _ => None,
        }
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Self::Error(error) => error.code.status(),
            Self::Gateway(status) => *status,
        }
    }
}

/// Returns a fraction from 0 to below 1 that is the same for equal seeds and numbers (splitmix64).
fn fraction(seed: u64, number: u64) -> f64 {
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // The 53 bits that a double represents exactly.
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_of_a_key_have_at_most_255_characters() {
        let now = Timestamp::from_milliseconds(1_795_167_000_123);
        let check = |zeros| {
            let text = format!("code=503,rate=0.{}1", "0".repeat(zeros));
            Preferences::for_key(&text, Deployment::Staging, now).map(|stored| stored.len())
        };
        assert_eq!(check(237), Ok(255));
        assert_eq!(check(238).unwrap_err().to_string(), "is longer than 255 characters");
    }
}
