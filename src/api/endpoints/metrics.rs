//! `/metrics`, on the operations listener: what all parts have counted, for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::header::{CONTENT_ENCODING, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::api::documents::gzip::{self, accepts_gzip};
use crate::api::response::{self, Response};
use crate::api::state::{Api, BackupStatus};
use crate::store::{Meters, Store};
use crate::telemetry;
use crate::telemetry::metrics::{Exposition, write_process};

/// Responds without the size of the disk if the disk does not respond. Nothing else here waits for the store.
pub async fn serve(api: &Api, request: &HeaderMap) -> Response {
    let db = Arc::clone(&api.store);
    let disk = api.workers.check(async move { db.disk() }).await.ok().flatten();
    let mut out = Exposition::default();
    build(api, &mut out);
    api.traffic.write(&mut out);
    let meters = api.store.meters();
    store(&meters, &mut out);
    if let Some(disk) = disk {
        out.value("petstore_disk_free_bytes", disk.free);
        out.value("petstore_disk_size_bytes", disk.size);
    }
    if let Some(status) = api.backups.get() {
        backups(status, &mut out);
    }
    if let Some(relay) = api.relay.get() {
        relay.write(&mut out);
    }
    if let Some(certificate) = api.certificate.get() {
        out.value("petstore_certificate_expiry_timestamp_seconds", certificate.expiry());
        out.value("petstore_certificate_rejected", u8::from(certificate.is_rejected()));
    }
    memory(api, &mut out);
    limits(api, &meters, &mut out);
    out.value("petstore_log_lines_dropped_total", telemetry::dropped_lines());
    write_process(api.started, &mut out);
    let (text, is_gzip) = (out.0, accepts_gzip(request));
    let body = if is_gzip { gzip::compress(text.as_bytes()) } else { text.into_bytes() };
    let mut response = response::with_content_type(Exposition::CONTENT_TYPE, StatusCode::OK, body);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn build(api: &Api, out: &mut Exposition) {
    let database = match *api.store {
        Store::Sqlite(_) => "sqlite",
        Store::Postgres(_) => "postgres",
    };
    let deployment = api.store.deployment();
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", crate::COMMIT),
        ("database", database),
        ("deployment", deployment.as_str()),
    ];
    out.family("petstore_build_info").sample(&labels, 1);
    out.value("petstore_draining", u8::from(api.draining.load(Ordering::Relaxed)));
}

fn store(meters: &Meters<'_>, out: &mut Exposition) {
    let writers = || meters.writers.iter().map(|(name, writer, queued)| ([("writes", *name)], *writer, *queued));
    out.family("petstore_writer_queued").samples(writers().map(|(labels, _, queued)| (labels, queued)));
    let mut batches = out.family("petstore_writer_batch_writes");
    for (labels, writer, _) in writers() {
        batches.spread(&labels, &writer.batch);
    }
    let mut commits = out.family("petstore_writer_commit_duration_seconds");
    for (labels, writer, _) in writers() {
        commits.spread(&labels, &writer.commit);
    }
    out.value("petstore_reads_in_flight", meters.reads);
    out.family("petstore_read_duration_seconds").spread(&[], &meters.readers.duration);
    if meters.connections.is_empty() {
        return;
    }
    let mut connections = BTreeMap::new();
    for (purpose, up) in &meters.connections {
        let (all, those_up) = connections.entry(*purpose).or_insert((0, 0));
        *all += 1;
        *those_up += u32::from(*up);
    }
    let wanted = connections.iter().map(|(purpose, (all, _))| ([("purpose", *purpose)], all));
    out.family("petstore_postgres_connections_wanted").samples(wanted);
    let up = connections.iter().map(|(purpose, (_, up))| ([("purpose", *purpose)], up));
    out.family("petstore_postgres_connections_up").samples(up);
    let [wanted, connected] = meters.standbys;
    out.value("petstore_postgres_standbys_wanted", wanted);
    out.value("petstore_postgres_standbys_connected", connected);
}

fn backups(status: &BackupStatus, out: &mut Exposition) {
    out.value("petstore_backup_interval_seconds", status.every.as_secs_f64());
    let (at, bytes) = status.newest.lock().unwrap_or_default();
    out.value("petstore_backup_last_success_timestamp_seconds", at.as_milliseconds() / 1_000);
    out.value("petstore_backup_last_size_bytes", bytes);
    out.value("petstore_backup_failures_total", status.failures.get());
}

/// The caches of API keys and pages.
fn memory(api: &Api, out: &mut Exposition) {
    let keys = &api.api_keys.counts;
    out.family("petstore_keys_checked_total")
        .sample(&[("by", "memory")], keys.remembered.get())
        .sample(&[("by", "database")], keys.looked_up.get());
    out.value("petstore_keys_unknown_total", keys.unknown.get());
    out.family("petstore_pages_total")
        .sample(&[("from", "memory")], api.pages.hits.get())
        .sample(&[("from", "database")], api.pages.misses.get());
}

fn limits(api: &Api, meters: &Meters<'_>, out: &mut Exposition) {
    let writes: u64 = meters.writers.iter().map(|(_, writer, _)| writer.refused.get()).sum();
    out.family("petstore_refused_total")
        .sample(&[("limit", "account_rate")], api.rate_limits.as_ref().map_or(0, |limits| limits.refused.get()))
        .sample(&[("limit", "sign_in_attempts")], api.password_counters.throttled.get())
        .sample(&[("limit", "password_hashes")], api.password_counters.refused.get())
        .sample(&[("limit", "write_queue")], writes)
        .sample(&[("limit", "reads_waiting")], meters.readers.refused.get());
    out.value("petstore_password_hashes_total", api.password_counters.hashed.get());
}
