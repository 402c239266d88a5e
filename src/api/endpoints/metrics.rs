//! `/metrics`, on the operations listener: what all parts have counted, for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::header::{CONTENT_ENCODING, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::api::admission::rate_limit::RateLimits;
use crate::api::documents::gzip::{self, accepts_gzip};
use crate::api::response::{self, Response};
use crate::api::state::Api;
use crate::store::{BackupStatus, Meters, Store};
use crate::telemetry;
use crate::telemetry::metrics::Exposition;

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
        out.gauge("petstore_disk_free_bytes", "Free space on the disk of the embedded database.")
            .sample(&[], disk.free);
        out.gauge("petstore_disk_size_bytes", "Size of the disk of the embedded database.").sample(&[], disk.size);
    }
    backups(api.store.backups(), &mut out);
    if let Some(relay) = api.relay() {
        relay.write(&mut out);
    }
    if let Some(certificate) = api.certificate.get() {
        out.gauge(
            "petstore_certificate_expiry_timestamp_seconds",
            "Time at which the listeners' certificate or its first issuer expires, in seconds since 1970.",
        )
        .sample(&[], certificate.expiry());
        out.gauge("petstore_certificate_rejected", "1 while the certificate's files are unusable, otherwise 0.")
            .sample(&[], u8::from(certificate.is_rejected()));
    }
    memory(api, &mut out);
    limits(api, &meters, &mut out);
    out.counter("petstore_log_lines_dropped_total", "Log lines dropped because stderr did not accept them in time.")
        .sample(&[], telemetry::dropped_lines());
    api.process.write(&mut out);
    let (text, is_gzip) = (out.into_text(), accepts_gzip(request));
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
    out.gauge("petstore_build_info", "Always 1. The labels have the build, the database and the deployment.")
        .sample(&labels, 1);
    out.gauge("petstore_draining", "1 while the process shuts down, otherwise 0.")
        .sample(&[], u8::from(api.is_draining()));
}

fn store(meters: &Meters<'_>, out: &mut Exposition) {
    let writers = || meters.writers.iter().map(|(name, writer, queued)| ([("writes", *name)], *writer, *queued));
    let mut queued = out.gauge("petstore_writer_queued", "Writes waiting for a batch.");
    for (labels, _, number) in writers() {
        queued.sample(&labels, number);
    }
    let mut batches =
        out.histogram("petstore_writer_batch_writes", "Number of writes in a batch, which are committed together.");
    for (labels, writer, _) in writers() {
        batches.spread(&labels, &writer.batch);
    }
    let mut commits =
        out.histogram("petstore_writer_commit_duration_seconds", "Time from the start of a batch until it is durable.");
    for (labels, writer, _) in writers() {
        commits.spread(&labels, &writer.commit);
    }
    out.gauge("petstore_reads_in_flight", "Database reads in progress.").sample(&[], meters.reads);
    out.histogram("petstore_read_duration_seconds", "Duration of a database read.")
        .spread(&[], &meters.readers.duration);
    if meters.connections.is_empty() {
        return;
    }
    let mut connections = BTreeMap::new();
    for (purpose, up) in &meters.connections {
        let (all, those_up) = connections.entry(*purpose).or_insert((0, 0));
        *all += 1;
        *those_up += u32::from(*up);
    }
    let mut wanted =
        out.gauge("petstore_postgres_connections_wanted", "Connections to PostgreSQL that the process maintains.");
    for (purpose, (all, _)) in &connections {
        wanted.sample(&[("purpose", purpose)], all);
    }
    let mut up = out.gauge("petstore_postgres_connections_up", "Established connections to PostgreSQL.");
    for (purpose, (_, those_up)) in &connections {
        up.sample(&[("purpose", purpose)], those_up);
    }
    let [wanted, connected] = meters.standbys;
    out.gauge("petstore_postgres_standbys_wanted", "Synchronous standbys that a commit waits for.").sample(&[], wanted);
    out.gauge("petstore_postgres_standbys_connected", "Synchronous standbys connected to the server.")
        .sample(&[], connected);
}

/// Scheduled backups, if there is a schedule.
fn backups(status: Option<&BackupStatus>, out: &mut Exposition) {
    let Some((status, every)) = status.and_then(|status| Some((status, status.every.get()?))) else { return };
    out.gauge("petstore_backup_interval_seconds", "Interval between scheduled backups.")
        .sample(&[], every.as_secs_f64());
    let last = status.last_success().map_or(0, |at| at.as_milliseconds() / 1_000);
    out.gauge(
        "petstore_backup_last_success_timestamp_seconds",
        "Time of the newest backup, in seconds since 1970; 0 if there is none.",
    )
    .sample(&[], last);
    out.gauge("petstore_backup_last_size_bytes", "Size of the newest backup.").sample(&[], status.last_bytes());
    out.counter("petstore_backup_failures_total", "Failed backups.").sample(&[], status.failures.get());
}

/// The caches of API keys and pages.
fn memory(api: &Api, out: &mut Exposition) {
    let keys = api.api_keys.counts();
    out.counter("petstore_keys_checked_total", "API keys checked, by where they were found.")
        .sample(&[("by", "memory")], keys.remembered.get())
        .sample(&[("by", "database")], keys.looked_up.get());
    out.counter("petstore_keys_unknown_total", "API keys looked up in the database and not found.")
        .sample(&[], keys.unknown.get());
    out.counter("petstore_pages_total", "Pages of lists served, by where they came from.")
        .sample(&[("from", "memory")], api.pages.hits.get())
        .sample(&[("from", "database")], api.pages.misses.get());
}

fn limits(api: &Api, meters: &Meters<'_>, out: &mut Exposition) {
    let mut refused = out.counter("petstore_refused_total", "Requests refused, by the limit that was reached.");
    refused
        .sample(&[("limit", "account_rate")], api.rate_limits.as_ref().map_or(0, RateLimits::refused))
        .sample(&[("limit", "sign_in_attempts")], api.password_counters.throttled.get())
        .sample(&[("limit", "password_hashes")], api.password_counters.refused.get())
        .sample(
            &[("limit", "write_queue")],
            meters.writers.iter().map(|(_, writer, _)| writer.refused.get()).sum::<u64>(),
        )
        .sample(&[("limit", "reads_waiting")], meters.readers.refused.get());
    out.counter("petstore_password_hashes_total", "Passwords hashed or verified.")
        .sample(&[], api.password_counters.hashed.get());
}
