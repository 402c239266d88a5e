//! Jobs that run beside the requests.

use std::sync::Arc;

use bounded_http::Tls;
use futures_util::future::OptionFuture;
use tokio::task::JoinHandle;

use super::App;
use super::backup_schedule::{Backups, Schedule};
use crate::api::{Api, BackupStatus};
use crate::config::ServiceSettings;
use crate::relay::{self, Endpoint, Relay};
use crate::store::{Store, delete_expired};
use crate::telemetry::traces;

/// Starts the jobs that a serving process needs. They run until they are aborted.
pub fn start(app: &App, tls: Option<Tls>) -> JoinHandle<()> {
    let App { api, console, audit_retention } = app.clone();
    let certificate = OptionFuture::from(tls.map(Tls::follow));
    // On a read-only disk there is none, and each write would only fill the log.
    let has_writer = !api.store.meters().writers.is_empty();
    app.api.workers.runtime.spawn(async move {
        let expired =
            delete_expired("responses", |limit| api.store.delete_expired_responses(api.clock.earlier(), limit));
        let old = delete_expired("rows of the audit", |limit| {
            api.store.delete_old_audit(api.clock.earlier().minus(audit_retention), limit)
        });
        let writes = async { tokio::join!(api.api_keys.write_down_uses(), expired, old) };
        tokio::join!(
            api.api_keys.follow(),
            api.account_requests.follow_deletions(&api.store),
            api.requests.follow(|| api.traffic.api_requests()),
            api.traffic.refusals.follow(),
            console.unstored_sessions.follow(),
            console.wrong_passwords.follow(),
            api.clock.follow(),
            OptionFuture::from(has_writer.then_some(writes)),
            certificate
        );
    })
}

/// Starts the export of traces if the environment names an OpenTelemetry collector.
pub fn start_traces(store: &Store) {
    if let Some(collector) = traces::collector(|name| super::variable(name)?.into_string().ok())
        && let Err(why) = traces::start(&collector, store.deployment().as_str())
    {
        tracing::warn!(%why, "cannot export traces");
    }
}

/// Starts scheduled backups if they are configured.
pub fn start_backups(settings: &ServiceSettings, api: &Api) -> std::io::Result<Option<Backups>> {
    let (Some(every), Store::Sqlite(database)) = (settings.backup_every, &*api.store) else { return Ok(None) };
    let folder = settings.backup_dir.clone().unwrap_or_else(|| database.folder().dir().join("backups"));
    let schedule = Schedule { every, keep: settings.backup_keep, folder };
    let status = Arc::new(BackupStatus { every, ..BackupStatus::default() });
    let _ = api.backups.set(Arc::clone(&status));
    Backups::start(schedule, Arc::clone(&api.store), status).map(Some)
}

/// Starts the relay if a web server is configured.
pub fn start_relay(to: Option<Endpoint>, settings: &ServiceSettings, api: &Api) -> std::io::Result<Option<Relay>> {
    let Some(endpoint) = to else { return Ok(None) };
    let status = Arc::<relay::Status>::default();
    let _ = api.relay.set(Arc::clone(&status));
    Relay::start(endpoint, settings.relay_retention, Arc::clone(&api.store), status).map(Some)
}
