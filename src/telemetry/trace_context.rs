//! The caller's trace (W3C Trace Context, section 3.2).

use std::fmt;

use axum::http::{HeaderMap, HeaderName};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Identifies one distributed trace (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// The span of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    /// Identifies the span within its trace.
    pub span: u64,
    /// Set if the caller may have recorded its span.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses `traceparent`. `None` if it is missing, repeated or malformed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(TRACEPARENT).iter();
        let parent = given.next().filter(|_| given.next().is_none())?.to_str().ok()?;
        let mut fields = parent.split('-');
        let version = hex(fields.next()?, 2)?;
        let (trace, span, flags) = (hex(fields.next()?, 32)?, hex(fields.next()?, 16)?, hex(fields.next()?, 2)?);
        // Later versions may have more fields. Version 00 has four, and ff is invalid.
        let is_known = version != 0xff && (version != 0 || fields.next().is_none());
        (is_known && trace != 0 && span != 0).then_some(Self {
            trace: TraceId(trace),
            span: u64::try_from(span).ok()?,
            sampled: flags & 1 == 1,
        })
    }
}

/// Parses a field of `length` lower-case hexadecimal digits.
fn hex(field: &str, length: usize) -> Option<u128> {
    let is_hex = field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(field, 16).ok())?
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[&str]) -> Option<TraceParent> {
        let mut map = HeaderMap::new();
        for value in given {
            map.append(TRACEPARENT, value.parse().unwrap());
        }
        TraceParent::of(&map)
    }

    #[test]
    fn only_well_formed_parents_are_accepted() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (accepted, sampled) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), true),
            (format!("00-{trace}-00f067aa0ba902b7-02"), false),
            (format!("cc-{trace}-00f067aa0ba902b7-03-more"), true),
        ] {
            let parent = of(&[&accepted]).unwrap_or_else(|| panic!("{accepted}"));
            assert_eq!((parent.trace.to_string().as_str(), parent.sampled), (trace, sampled), "{accepted}");
            assert_eq!(format!("{:016x}", parent.span), "00f067aa0ba902b7");
            assert_eq!(of(&[&accepted, &accepted]), None, "a repeated header is rejected");
        }
        for refused in [
            String::new(),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-+{}-00f067aa0ba902b7-01", &trace[1..]),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        ] {
            assert_eq!(of(&[&refused]), None, "{refused}");
        }
    }
}
