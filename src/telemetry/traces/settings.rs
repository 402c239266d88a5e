//! Settings of the export, from OpenTelemetry's standard variables
//! (opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables and /protocol/exporter).

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::Sampler;

/// The settings of the export.
#[derive(Debug)]
pub struct Settings {
    pub endpoint: Uri,
    /// May contain credentials, so the values are marked sensitive.
    pub headers: HeaderMap,
    /// The certificate authorities for an `https` endpoint (PEM file).
    pub certificate: Option<String>,
    /// Timeout of one attempt to send a batch.
    pub timeout: Duration,
    /// How long a batch waits for further spans.
    pub delay: Duration,
    pub queue: usize,
    pub batch: usize,
    pub sampler: Sampler,
    /// Resource attributes from the environment.
    pub attributes: Vec<(String, String)>,
}

/// Attributes that all spans of a process share.
#[derive(Debug)]
pub struct Resource<'a> {
    pub deployment: &'a str,
}

impl Settings {
    /// Reads the environment through `variable`. `None` if it names no endpoint or disables traces. Invalid values are
    /// reported to `warn` and ignored, as the specification requires: the service starts without traces.
    pub fn read(variable: impl Fn(&str) -> Option<String>, mut warn: impl FnMut(&str)) -> Option<Self> {
        let variable =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let of_traces = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp");
        if is_off {
            return None;
        }
        let given = match variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(whole) => whole,
            None => format!("{}/v1/traces", variable("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/')),
        };
        let Some(endpoint) = endpoint(&given) else {
            warn("OTEL_EXPORTER_OTLP_ENDPOINT is no address of http:// or https://, so there are no traces");
            return None;
        };
        if of_traces("PROTOCOL").is_some_and(|protocol| protocol != "http/json") {
            warn("OTEL_EXPORTER_OTLP_PROTOCOL is passed over: traces are sent as http/json, to the endpoint of HTTP");
        }
        let sampler = variable("OTEL_TRACES_SAMPLER").map_or(Some(Sampler::PARENT_BASED_ALWAYS_ON), |name| {
            Sampler::named(&name, variable("OTEL_TRACES_SAMPLER_ARG").as_deref())
        });
        let sampler = sampler.unwrap_or_else(|| {
            warn("OTEL_TRACES_SAMPLER is unknown or its argument no ratio: parentbased_always_on is used");
            Sampler::PARENT_BASED_ALWAYS_ON
        });
        let mut number = |name: &str, value: Option<String>, default: u64| match value.map(|value| value.parse()) {
            None => default,
            Some(Ok(number)) if number > 0 => number,
            Some(_) => {
                warn(&format!("{name} is no number above 0: {default} is used"));
                default
            }
        };
        let timeout = number("OTEL_EXPORTER_OTLP_TIMEOUT", of_traces("TIMEOUT"), 10_000);
        let delay = number("OTEL_BSP_SCHEDULE_DELAY", variable("OTEL_BSP_SCHEDULE_DELAY"), 5_000);
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", variable("OTEL_BSP_MAX_QUEUE_SIZE"), 2_048);
        let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 512);
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in of_traces("HEADERS").iter().flat_map(|headers| pairs(headers)) {
            let Some((name, mut value)) = HeaderName::from_str(&name).ok().zip(HeaderValue::from_str(&value).ok())
            else {
                warn("OTEL_EXPORTER_OTLP_HEADERS has something that is no header, which is left out");
                continue;
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut attributes: Vec<_> =
            variable("OTEL_RESOURCE_ATTRIBUTES").iter().flat_map(|attributes| pairs(attributes)).collect();
        let service = variable("OTEL_SERVICE_NAME");
        if service.is_some() || attributes.iter().all(|(name, _)| name != "service.name") {
            attributes.retain(|(name, _)| name != "service.name");
            attributes.insert(0, ("service.name".into(), service.unwrap_or_else(|| "petstore".into())));
        }
        Some(Self {
            endpoint,
            headers,
            certificate: of_traces("CERTIFICATE"),
            timeout: Duration::from_millis(timeout),
            delay: Duration::from_millis(delay),
            // A bound that memory allows. The specification has none.
            queue: queue.min(1 << 16) as usize,
            batch: batch.min(queue).min(1 << 16) as usize,
            sampler,
            attributes,
        })
    }
}

fn endpoint(text: &str) -> Option<Uri> {
    let mut parts = text.parse::<Uri>().ok()?.into_parts();
    let is_http = matches!(parts.scheme.as_ref()?.as_str(), "http" | "https");
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    let endpoint = Uri::from_parts(parts).ok()?;
    (is_http && !endpoint.host()?.is_empty()).then_some(endpoint)
}

/// Parses `name=value,name=value`, percent-encoded (W3C Baggage, without properties).
fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(Cow::into_owned);
    list.split(',').filter_map(move |pair| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name).filter(|name| !name.is_empty())?, decoded(value)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the settings of an environment, and the warnings.
    fn read(environment: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let mut warnings = Vec::new();
        let variable =
            |name: &str| environment.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned());
        let settings = Settings::read(variable, |warning| warnings.push(warning.to_owned()));
        (settings, warnings)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn without_an_endpoint_or_where_they_are_not_wanted_there_are_no_traces() {
        for environment in [
            &[] as &[_],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            let (settings, warnings) = read(environment);
            assert!(settings.is_none() && warnings.is_empty(), "{environment:?} {warnings:?}");
        }
        for wrong in ["collector:4318", "grpc://collector:4317", "http://", "http://a b"] {
            let (settings, warnings) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]);
            assert!(settings.is_none() && warnings.len() == 1, "{wrong} {warnings:?}");
        }
    }

    #[test]
    fn what_is_not_said_is_as_the_specification_has_it() {
        let (settings, warnings) = read(&[ENDPOINT]);
        let settings = settings.unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings.endpoint, "http://collector:4318/v1/traces");
        assert_eq!((settings.timeout, settings.delay), (Duration::from_secs(10), Duration::from_secs(5)));
        assert_eq!((settings.queue, settings.batch), (2_048, 512));
        assert_eq!(settings.sampler, Sampler::PARENT_BASED_ALWAYS_ON);
        assert_eq!(settings.attributes, [("service.name".into(), "petstore".into())]);
    }

    #[test]
    fn what_is_said_of_traces_stands_over_what_is_said_of_all() {
        let (settings, warnings) = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://[::1]:9"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "20"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "30"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, api-key = y"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,host.name=a%2Cb"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings.endpoint, "https://[::1]:9/");
        assert_eq!(settings.timeout, Duration::from_millis(30));
        assert_eq!(settings.headers["authorization"], "Bearer x");
        assert_eq!(settings.headers["api-key"], "y");
        assert!(!format!("{settings:?}").contains("Bearer x"), "a secret is not shown");
        assert_eq!(Some(settings.sampler), Sampler::named("traceidratio", Some("0.25")));
        assert_eq!(
            settings.attributes,
            [("service.name", "other"), ("host.name", "a,b")].map(|(a, b)| (a.into(), b.into()))
        );
    }

    #[test]
    fn what_is_said_wrong_is_told_and_passed_over() {
        let (settings, warnings) = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c,d=e"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(warnings.len(), 5, "{warnings:?}");
        assert_eq!((settings.timeout, settings.queue), (Duration::from_secs(10), 2_048));
        assert_eq!(settings.headers["d"], "e");
    }
}
