//! A preference of a staging service: a failure to simulate, or the requests that get it.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::http::StatusCode;
use jiff::civil::Date;

use crate::api::error::Code;
use crate::api::input::query_and_body::integer;
use crate::api::operations::Operation;
use crate::domain::{Invalid, names};

/// Displayed as in `Prefer` and `Preference-Applied`, for example `code=503`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preference {
    /// An error by its status.
    Code(StatusCode),
    Error(Code),
    Delay(Duration),
    Drop(Dropped),
    /// Bytes of the response's body per second.
    Pace(u16),
    Body(Broken),
    RetryAfter(RetryAfter),
    Date(Date),
    /// The share of the requests, from 0 to 1.
    Rate(f64),
    Seed(u64),
    Every(u64),
    First(u64),
    Operation(Operation),
    /// False for `handling=lenient`.
    Strict(bool),
}

names! {
    /// The part of an exchange that is lost.
    pub enum Dropped {
        Request = "request",
        Response = "response",
        /// The second half of the response's body.
        Body = "body",
        /// The response, and what the client still sends: the connection is reset.
        Reset = "reset",
    }
}

names! {
    /// A fault in the body of a success, which then breaks its schema.
    pub enum Broken {
        Cut = "cut",
        Html = "html",
        UnknownField = "unknown-field",
        UnknownValue = "unknown-value",
    }
}

/// The header `Retry-After` of a simulated error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryAfter {
    Seconds(u64),
    /// The date after as many seconds as it would have.
    Date,
}

impl Preference {
    /// `None` if the name is unknown.
    pub fn parse(name: &str, value: &str) -> Option<Result<Self, Invalid>> {
        let number = |range: RangeInclusive<i64>| integer(value).filter(|it| range.contains(it)).map(i64::unsigned_abs);
        let (parsed, allowed) = match name {
            "code" => (StatusCode::from_bytes(value.as_bytes()).ok().map(Self::Code), "an HTTP status"),
            "error" => (Code::parse(value).ok().map(Self::Error), "an error code of the API"),
            "delay" => (number(1..=30_000).map(Duration::from_millis).map(Self::Delay), "1 to 30000 (milliseconds)"),
            "drop" => (Dropped::parse(value).ok().map(Self::Drop), "request, response, body or reset"),
            "pace" => (number(1..=10_000).map(|bytes| Self::Pace(bytes as u16)), "1 to 10000 (bytes per second)"),
            "body" => (Broken::parse(value).ok().map(Self::Body), "cut, html, unknown-field or unknown-value"),
            "retry-after" => {
                let seconds = number(0..=3_600).map(RetryAfter::Seconds);
                let date = (value == "date").then_some(RetryAfter::Date);
                (seconds.or(date).map(Self::RetryAfter), "0 to 3600 (seconds), or date")
            }
            "date" => (date(value).map(Self::Date), "a date such as 2030-12-05, today or later"),
            "rate" => (share(value).map(Self::Rate), "0 to 1, such as 0.1"),
            "seed" => (number(0..=i64::MAX).map(Self::Seed), "an integer from 0"),
            "every" => (number(1..=i64::MAX).map(Self::Every), "an integer from 1"),
            "first" => (number(1..=i64::MAX).map(Self::First), "an integer from 1"),
            "operation" => {
                (Operation::with_id(value).map(Self::Operation), "an operation of the API, such as createPet")
            }
            "handling" => {
                let strict = [("strict", true), ("lenient", false)].into_iter().find(|(name, _)| *name == value);
                (strict.map(|(_, is_strict)| Self::Strict(is_strict)), "strict or lenient")
            }
            _ => return None,
        };
        Some(parsed.ok_or_else(|| Invalid(format!("has an invalid {name}: it must be {allowed}"))))
    }

    pub fn operation(&self) -> Option<Operation> {
        if let Self::Operation(operation) = self { Some(*operation) } else { None }
    }

    /// Returns whether the preference chooses requests.
    pub const fn selects(&self) -> bool {
        self.portion().is_some() || matches!(self, Self::Seed(_) | Self::Operation(_))
    }

    /// Returns whether the preference changes a response.
    pub const fn is_effect(&self) -> bool {
        !self.selects() && !matches!(self, Self::RetryAfter(_) | Self::Strict(_))
    }

    /// The name of a preference that chooses a portion of the requests.
    pub const fn portion(&self) -> Option<&'static str> {
        match self {
            Self::Rate(_) => Some("rate"),
            Self::Every(_) => Some("every"),
            Self::First(_) => Some("first"),
            _ => None,
        }
    }

    /// The reason why a preference that does not apply to an operation is useless.
    pub const fn why_useless(&self) -> &'static str {
        match self {
            Self::RetryAfter(_) => "is no header of this error",
            _ => "is no documented error",
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(status) => write!(f, "code={}", status.as_str()),
            Self::Error(code) => write!(f, "error={}", code.as_str()),
            Self::Delay(delay) => write!(f, "delay={}", delay.as_millis()),
            Self::Drop(dropped) => write!(f, "drop={}", dropped.as_str()),
            Self::Pace(bytes) => write!(f, "pace={bytes}"),
            Self::Body(broken) => write!(f, "body={}", broken.as_str()),
            Self::RetryAfter(RetryAfter::Seconds(seconds)) => write!(f, "retry-after={seconds}"),
            Self::RetryAfter(RetryAfter::Date) => f.write_str("retry-after=date"),
            Self::Date(day) => write!(f, "date={day}"),
            Self::Rate(share) => write!(f, "rate={share}"),
            Self::Seed(seed) => write!(f, "seed={seed}"),
            Self::Every(number) => write!(f, "every={number}"),
            Self::First(number) => write!(f, "first={number}"),
            Self::Operation(operation) => write!(f, "operation={}", operation.id()),
            Self::Strict(is_strict) => write!(f, "handling={}", if *is_strict { "strict" } else { "lenient" }),
        }
    }
}

fn date(value: &str) -> Option<Date> {
    // jiff accepts other forms of ISO 8601.
    value.parse().ok().filter(|day: &Date| day.to_string() == value)
}

fn share(value: &str) -> Option<f64> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.parse().ok().filter(|share| is_plain && (0.0..=1.0).contains(share))
}
