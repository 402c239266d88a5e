//! Trace export, if the environment names an OpenTelemetry collector.

use tokio::net::TcpListener;

use crate::config::{Addresses, Scheme};
use crate::http::ListenerService;
use crate::server::Access;
use crate::store::Store;
use crate::telemetry::traces;

pub use traces::Exporting as TraceExport;

type Listeners = Vec<(TcpListener, ListenerService, Access)>;

/// Makes the listeners record their requests as spans.
pub fn start(listeners: Listeners, addresses: &Addresses, store: &Store) -> (Listeners, Option<TraceExport>) {
    let warn = |warning: &str| tracing::warn!("{warning}");
    let variable = |name: &str| std::env::var(name).ok();
    let Some(settings) = traces::Settings::read(variable, store.deployment().as_str(), warn) else {
        return (listeners, None);
    };
    match traces::start(settings, addresses.scheme == Scheme::Https) {
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
