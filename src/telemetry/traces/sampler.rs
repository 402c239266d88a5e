//! Decides which requests are recorded.

use crate::telemetry::trace_context::TraceId;

/// The samplers that OpenTelemetry names (`OTEL_TRACES_SAMPLER`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Set if the decision of a caller within a trace counts.
    parent_based: bool,
    /// The share of other requests that is recorded, from 0 to 1.
    ratio: f64,
}

impl Sampler {
    /// The default.
    pub const PARENT_BASED_ALWAYS_ON: Self = Self { parent_based: true, ratio: 1.0 };

    /// Returns a sampler by name and argument. `None` if the name is unknown or the argument is not a ratio.
    pub fn named(name: &str, argument: Option<&str>) -> Option<Self> {
        let (parent_based, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Some(1.0), |argument| argument.parse().ok())?,
            _ => return None,
        };
        (0.0..=1.0).contains(&ratio).then_some(Self { parent_based, ratio })
    }

    /// Returns whether to record a request. `parent` is the caller's decision, if any.
    pub fn takes(self, trace: TraceId, parent: Option<bool>) -> bool {
        match parent {
            Some(sampled) if self.parent_based => sampled,
            _ => self.is_within_ratio(trace),
        }
    }

    /// Decides by the id, so that all services record the same traces. Its last 56 bits are random (W3C Trace Context
    /// 2); an `f64` holds 53 of them.
    fn is_within_ratio(self, TraceId(trace): TraceId) -> bool {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        let position = (trace & ((1 << BITS) - 1)) as f64 / (1_u64 << BITS) as f64;
        position < self.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::random;

    #[test]
    fn parent_decides_for_parent_based_samplers_only() {
        let (low, high) = (TraceId(7 << 100), TraceId(u128::MAX));
        let decided = |name, argument| {
            let sampler = Sampler::named(name, argument).unwrap();
            let of = |trace| [None, Some(true), Some(false)].map(|parent| sampler.takes(trace, parent));
            (of(low), of(high))
        };
        let (all, none) = ([true; 3], [false; 3]);
        assert_eq!(decided("always_on", None), (all, all));
        assert_eq!(decided("always_off", None), (none, none));
        assert_eq!(decided("traceidratio", Some("0.5")), (all, none));
        assert_eq!(decided("traceidratio", None), (all, all));
        assert_eq!(decided("parentbased_always_on", None), ([true, true, false], [true, true, false]));
        assert_eq!(decided("parentbased_always_off", None), ([false, true, false], [false, true, false]));
        assert_eq!(decided("parentbased_traceidratio", Some("0.5")), ([true, true, false], [false, true, false]));
        for (name, argument) in [
            ("xray", None),
            ("", None),
            ("traceidratio", Some("2")),
            ("traceidratio", Some("NaN")),
            ("parentbased_traceidratio", Some("-0.1")),
            ("traceidratio", Some("half")),
        ] {
            assert_eq!(Sampler::named(name, argument), None, "{name} {argument:?}");
        }
    }

    #[test]
    fn ratio_records_its_share() {
        let sampler = Sampler::named("traceidratio", Some("0.25")).unwrap();
        let taken = (0..10_000).filter(|_| sampler.takes(TraceId(u128::from_ne_bytes(random())), None));
        let taken = taken.count();
        // Eight standard deviations of 43.
        assert!((2_150..=2_850).contains(&taken), "{taken}");
    }
}
