//! Trace export, if the environment names an OpenTelemetry collector.

use tokio::net::TcpListener;

use crate::config::Addresses;
#[cfg(feature = "otlp")]
use crate::config::Scheme;
use crate::http::ListenerService;
use crate::server::Access;
use crate::store::Store;
#[cfg(feature = "otlp")]
use crate::telemetry::traces;

#[cfg(feature = "otlp")]
pub use traces::Exporting as TraceExport;

type Listeners = Vec<(TcpListener, ListenerService, Access)>;

/// Makes the listeners record their requests as spans.
#[cfg(feature = "otlp")]
pub fn start(listeners: Listeners, addresses: &Addresses, store: &Store) -> (Listeners, Option<TraceExport>) {
    let warn = |warning: &str| tracing::warn!("{warning}");
    let Some(settings) = traces::Settings::read(|name| std::env::var(name).ok(), warn) else {
        return (listeners, None);
    };
    let resource = traces::Resource { deployment: store.deployment().as_str() };
    match traces::start(settings, &resource, addresses.scheme == Scheme::Https) {
        Ok((tracer, export)) => {
            let traced =
                listeners.into_iter().map(|(socket, service, access)| (socket, service.tracing(&tracer), access));
            (traced.collect(), Some(export))
        }
        Err(why) => {
            tracing::warn!(why, "cannot export traces");
            (listeners, None)
        }
    }
}

/// Never exists in a build without the feature `otlp`.
#[cfg(not(feature = "otlp"))]
pub enum TraceExport {}

#[cfg(not(feature = "otlp"))]
impl TraceExport {
    pub async fn flush(self) {
        match self {}
    }
}

/// Exports nothing in a build without the feature `otlp`.
#[cfg(not(feature = "otlp"))]
pub fn start(listeners: Listeners, _: &Addresses, _: &Store) -> (Listeners, Option<TraceExport>) {
    (listeners, None)
}

/// Warns if the environment names a collector, because a build without the feature `otlp` exports no traces.
#[cfg(not(feature = "otlp"))]
pub fn warn_of_ignored_collector() {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp");
    let named = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .into_iter()
        .find(|name| variable(name).is_some());
    if let Some(variable) = named.filter(|_| !is_off) {
        tracing::warn!(variable, "this build exports no traces, build it with `--features otlp`");
    }
}
