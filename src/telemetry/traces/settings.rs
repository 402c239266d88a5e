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

#[derive(Debug)]
pub struct Settings {
    pub endpoint: Uri,
    /// May contain credentials, so the values are marked sensitive.
    pub headers: HeaderMap,
    /// The certificate authorities for an `https` endpoint (PEM file).
    pub certificate: Option<String>,
    /// Timeout of one attempt to send a batch.
    pub timeout: Duration,
    /// Time that a batch waits for further spans.
    pub delay: Duration,
    pub queue: usize,
    pub batch: usize,
    pub sampler: Sampler,
    /// Attributes that all spans of the process share.
    pub attributes: Vec<(String, String)>,
}

impl Settings {
    /// Reads the environment through `variable`. `None` if it names no endpoint or disables traces. Invalid values are
    /// reported to `warn` and ignored, as the specification requires: the service starts without traces.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
        deployment: &str,
        mut warn: impl FnMut(&str),
    ) -> Option<Self> {
        let mut environment = Environment { variable: &variable, warn: &mut warn };
        if environment.is_off() {
            return None;
        }
        let endpoint = environment.endpoint()?;
        if let Some((name, protocol)) = environment.of_traces("PROTOCOL")
            && protocol != "http/json"
        {
            let ignored = format!("{name} is ignored, sending http/json: the endpoint must be the one for HTTP");
            (environment.warn)(&ignored);
        }
        let timeout =
            environment.of_traces("TIMEOUT").map_or(10_000, |(name, value)| environment.above_0(&name, &value, 10_000));
        let queue = environment.number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048);
        let batch = environment.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512);
        Some(Self {
            endpoint,
            headers: environment.headers(),
            certificate: environment.of_traces("CERTIFICATE").map(|(_, file)| file),
            timeout: Duration::from_millis(timeout),
            delay: Duration::from_millis(environment.number("OTEL_BSP_SCHEDULE_DELAY", 5_000)),
            // A bound that memory allows. The specification has none.
            queue: queue.min(1 << 16) as usize,
            batch: batch.min(queue).min(1 << 16) as usize,
            sampler: environment.sampler(),
            attributes: environment.attributes(deployment),
        })
    }
}

struct Environment<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warn: &'a mut dyn FnMut(&str),
}

impl Environment<'_> {
    /// The value of a variable that is not empty.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// A setting of the exporter, with the name of its variable: that for traces, or that for all signals.
    fn of_traces(&self, name: &str) -> Option<(String, String)> {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn is_off(&mut self) -> bool {
        let exporters = self.get("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".into());
        let exporters: Vec<_> = exporters.split(',').map(str::trim).collect();
        if exporters.iter().any(|exporter| !matches!(*exporter, "otlp" | "none")) {
            (self.warn)("OTEL_TRACES_EXPORTER contains exporters other than otlp, which are ignored");
        }
        !exporters.contains(&"otlp")
            || self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn endpoint(&mut self) -> Option<Uri> {
        let (name, given) = self.of_traces("ENDPOINT")?;
        let is_whole = name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let endpoint = endpoint(&if is_whole { given } else { format!("{}/v1/traces", given.trim_end_matches('/')) });
        if endpoint.is_none() {
            (self.warn)(&format!("{name} is not an http:// or https:// URL, exporting no traces"));
        }
        endpoint
    }

    fn sampler(&mut self) -> Sampler {
        let argument = self.get("OTEL_TRACES_SAMPLER_ARG");
        let sampler = self.get("OTEL_TRACES_SAMPLER").map(|name| Sampler::named(&name, argument.as_deref()));
        sampler.unwrap_or(Some(Sampler::PARENT_BASED_ALWAYS_ON)).unwrap_or_else(|| {
            (self.warn)("OTEL_TRACES_SAMPLER is unknown or its argument is not a ratio, using parentbased_always_on");
            Sampler::PARENT_BASED_ALWAYS_ON
        })
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        self.get(name).map_or(default, |value| self.above_0(name, &value, default))
    }

    fn above_0(&mut self, name: &str, value: &str, default: u64) -> u64 {
        match value.parse() {
            Ok(number) if number > 0 => number,
            _ => {
                (self.warn)(&format!("{name} is not a number above 0, using {default}"));
                default
            }
        }
    }

    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let Some((variable, given)) = self.of_traces("HEADERS") else { return headers };
        for pair in pairs(&given) {
            let header =
                pair.and_then(|(name, value)| HeaderName::from_str(&name).ok().zip(HeaderValue::from_str(&value).ok()));
            let Some((name, mut value)) = header else {
                (self.warn)(&format!("{variable} contains an invalid header, which is ignored"));
                continue;
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers
    }

    fn attributes(&mut self, deployment: &str) -> Vec<(String, String)> {
        let mut attributes = vec![
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("deployment.environment.name".to_owned(), deployment.to_owned()),
            ("service.name".to_owned(), "petstore".to_owned()),
        ];
        let given = self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let service = self.get("OTEL_SERVICE_NAME").map(|name| Some(("service.name".to_owned(), name)));
        for pair in pairs(&given).chain(service) {
            let Some((name, value)) = pair else {
                (self.warn)("OTEL_RESOURCE_ATTRIBUTES contains an invalid attribute, which is ignored");
                continue;
            };
            match attributes.iter_mut().find(|(known, _)| *known == name) {
                Some(attribute) => attribute.1 = value,
                None => attributes.push((name, value)),
            }
        }
        attributes
    }
}

fn endpoint(text: &str) -> Option<Uri> {
    let mut parts = text.parse::<Uri>().ok()?.into_parts();
    let is_http = matches!(parts.scheme.as_ref()?.as_str(), "http" | "https");
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    let endpoint = Uri::from_parts(parts).ok()?;
    (is_http && !endpoint.host()?.is_empty()).then_some(endpoint)
}

/// Parses `name=value,name=value`, percent-encoded (W3C Baggage, without properties). `None` for an invalid pair.
fn pairs(list: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(Cow::into_owned);
    list.split(',').filter(|pair| !pair.trim().is_empty()).map(move |pair| {
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
        let settings = Settings::read(variable, "staging", |warning| warnings.push(warning.to_owned()));
        (settings, warnings)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn missing_or_invalid_endpoint_disables_traces() {
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
    fn defaults_are_those_of_the_specification() {
        let (settings, warnings) = read(&[ENDPOINT]);
        let settings = settings.unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings.endpoint, "http://collector:4318/v1/traces");
        assert_eq!((settings.timeout, settings.delay), (Duration::from_secs(10), Duration::from_secs(5)));
        assert_eq!((settings.queue, settings.batch), (2_048, 512));
        assert_eq!(settings.sampler, Sampler::PARENT_BASED_ALWAYS_ON);
        let version = env!("CARGO_PKG_VERSION");
        let expected =
            [("service.version", version), ("deployment.environment.name", "staging"), ("service.name", "petstore")];
        assert_eq!(settings.attributes, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn variables_for_traces_override_general_ones() {
        let (settings, warnings) = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://[::1]:9"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "20"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "30"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, api-key = y"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,host.name=a%2Cb,service.version=2"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(settings.endpoint, "https://[::1]:9/");
        assert_eq!(settings.timeout, Duration::from_millis(30));
        assert_eq!(settings.headers["authorization"], "Bearer x");
        assert_eq!(settings.headers["api-key"], "y");
        assert!(!format!("{settings:?}").contains("Bearer x"), "secrets are hidden");
        assert_eq!(Some(settings.sampler), Sampler::named("traceidratio", Some("0.25")));
        let expected = [
            ("service.version", "2"),
            ("deployment.environment.name", "staging"),
            ("service.name", "other"),
            ("host.name", "a,b"),
        ];
        assert_eq!(settings.attributes, expected.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn warnings_name_the_variable_that_was_set() {
        for (name, value) in [("TIMEOUT", "0"), ("PROTOCOL", "grpc"), ("HEADERS", "a"), ("ENDPOINT", "collector")] {
            let name = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let (_, warnings) = read(&[ENDPOINT, (&name, value)]);
            assert!(warnings.len() == 1 && warnings[0].starts_with(&format!("{name} ")), "{warnings:?}");
        }
        for (name, value) in [("OTEL_TRACES_EXPORTER", "otlp,console"), ("OTEL_RESOURCE_ATTRIBUTES", "host.name,a=b")] {
            let (settings, warnings) = read(&[ENDPOINT, (name, value)]);
            assert!(settings.is_some() && warnings.len() == 1 && warnings[0].starts_with(name), "{warnings:?}");
        }
    }

    #[test]
    fn invalid_values_are_reported_and_ignored() {
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
