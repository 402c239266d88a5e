//! `/metrics`, on the operations listener.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use petstore::api::{BackupStatus, Operation};
use testkit::{PostgresServer, Request, Response, until};

use crate::service::{NOW, Service, Setup};
use crate::transport::Transport;

/// Name and type of each family.
fn families(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

#[tokio::test]
async fn only_the_operations_listener_serves_metrics() {
    let service = Service::start().await;
    let answer = service.metrics().await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let build = format!(
        r#"petstore_build_info{{version="{}",commit="{}",database="sqlite",deployment="staging"}}"#,
        env!("CARGO_PKG_VERSION"),
        petstore::COMMIT
    );
    assert_eq!(answer.metric(&build), 1.0);
    assert!(answer.metric("process_resident_memory_bytes") > 1e6);
    assert!(answer.metric("process_open_fds") > 3.0);
    for address in [service.store_address, service.messages_address] {
        assert_eq!(Request::new(address, "GET", "/metrics").send().await.code(), "not_found");
    }
}

#[tokio::test]
async fn operations_are_counted_by_path_template() {
    let cors_origins = vec!["http://elsewhere.example".to_owned()];
    let service = Service::start_with(Setup { cors_origins, ..Setup::default() }).await;
    for operation in Operation::documented() {
        assert_eq!(service.request_to(operation, "1").send().await.status(), 401);
        // CORS makes no difference.
        let from_a_page = service.request_to(operation, "1").header("origin", "http://elsewhere.example");
        assert_eq!(from_a_page.send().await.status(), 401);
    }
    let scraped = service.metrics().await;
    for operation in Operation::documented() {
        let (path, method) = (operation.path(), operation.method());
        let sample = format!(r#"petstore_http_requests_total{{route="{path}",method="{method}",status="401"}}"#);
        assert_eq!(scraped.metric(&sample), 2.0, "{sample}");
    }
    assert_eq!(scraped.metric(r#"petstore_http_request_duration_seconds_count{route="/v1/pets",method="GET"}"#), 2.0);
}

#[tokio::test]
async fn clients_cannot_create_labels() {
    let service = Service::start().await;
    for path in ["/v1/pets/", "/a", "/b?c=d", "/v1/pets/1/2", "/metrics"] {
        assert_eq!(service.get(path).await.status(), 404, "{path}");
    }
    for method in ["BREW", "TRACE", "PROPFIND"] {
        assert_eq!(service.request(method, "/v1/pets").send().await.status(), 405, "{method}");
    }
    assert_eq!(service.get("/v1/pets/77").await.status(), 404);
    assert_eq!(service.get("/v1/pets/abc").await.status(), 404);

    let scraped = service.metrics().await;
    for (labels, count) in [
        (r#"route="unmatched",method="GET",status="404""#, 5.0),
        (r#"route="/v1/pets",method="other",status="405""#, 3.0),
        (r#"route="/v1/pets/{petId}",method="GET",status="404""#, 2.0),
    ] {
        assert_eq!(scraped.metric(&format!("petstore_http_requests_total{{{labels}}}")), count, "{labels}");
    }
}

#[tokio::test]
async fn components_count_their_work() {
    let service = Service::with_pets(3).await;
    for _ in 0..4 {
        assert_eq!(service.get("/v1/pets").await.status(), 200);
    }
    assert_eq!(service.request("GET", "/v1/pets").key("pet_test_x").send().await.status(), 401);

    let scraped = service.metrics().await;
    // The service's own writes may share a batch with these.
    let batches = scraped.metric(r#"petstore_writer_batch_writes_count{writes="all"}"#);
    let writes = scraped.metric(r#"petstore_writer_batch_writes_sum{writes="all"}"#);
    assert!(writes >= 3.0 && batches >= 3.0 && batches <= writes, "{}", scraped.body);
    assert!(scraped.metric(r#"petstore_writer_commit_duration_seconds_sum{writes="all"}"#) > 0.0);
    assert_eq!(scraped.metric(r#"petstore_writer_queued{writes="all"}"#), 0.0);
    let postgres = Service::start_on_postgresql().await;
    postgres.create_pets(2).await;
    postgres.get("/v1/pets").await;
    // The first read and one in 16 are measured.
    let has_measured = |scraped: &Response| scraped.metric("petstore_read_duration_seconds_count") >= 1.0;
    assert!(has_measured(&scraped) && has_measured(&postgres.metrics().await));
    let written = r#"petstore_writer_batch_writes_sum{writes="animals"}"#;
    assert_eq!(postgres.metrics().await.metric(written), 2.0);
    assert_eq!(postgres.metrics().await.metric(r#"petstore_writer_queued{writes="animals"}"#), 0.0);
    for connections in ["wanted", "up"] {
        let sample = format!(r#"petstore_postgres_connections_{connections}{{purpose="animals"}}"#);
        assert_eq!(postgres.metrics().await.metric(&sample), 1.0, "{sample}");
    }
    let (cached, read) = (r#"petstore_pages_total{from="memory"}"#, r#"petstore_pages_total{from="database"}"#);
    assert_eq!(scraped.metric(cached) + scraped.metric(read), 4.0);
    assert!(scraped.metric(read) >= 1.0);
    let (known, looked_up) =
        (r#"petstore_keys_checked_total{by="memory"}"#, r#"petstore_keys_checked_total{by="database"}"#);
    assert_eq!(scraped.metric(known) + scraped.metric(looked_up), 7.0, "an impossible key is not looked up");
    // The service watches for changed keys, so it may look up more than one.
    assert!(scraped.metric(looked_up) >= 1.0);
    assert_eq!(scraped.metric("petstore_http_requests_in_flight"), 1.0);
    assert!(scraped.metric(r#"petstore_connections_accepted_total{listener="store"}"#) >= 8.0);
    assert_eq!(scraped.metric(r#"petstore_connections_open{listener="ops"}"#), 1.0);
}

#[tokio::test]
async fn backup_age_is_reported_with_a_schedule() {
    let service = Service::start().await;
    assert!(!service.metrics().await.body.contains("petstore_backup"), "no schedule, no metric");

    let status = Arc::new(BackupStatus { every: Duration::from_secs(3_600), ..BackupStatus::default() });
    service.api.backups.set(Arc::clone(&status)).unwrap();
    let scraped = service.metrics().await;
    assert_eq!(scraped.metric("petstore_backup_interval_seconds"), 3_600.0);
    assert_eq!(scraped.metric("petstore_backup_last_success_timestamp_seconds"), 0.0, "no backup yet");

    *status.newest.lock() = Some((NOW, 4_096));
    status.failures.increment();
    let scraped = service.metrics().await;
    assert_eq!(scraped.metric("petstore_backup_last_success_timestamp_seconds"), 1_795_167_000.0);
    assert_eq!(scraped.metric("petstore_backup_last_size_bytes"), 4_096.0);
    assert_eq!(scraped.metric("petstore_backup_failures_total"), 1.0);
}

#[tokio::test]
async fn missing_standbys_are_counted() {
    let server = PostgresServer::start();
    let service = Service::start_at(&server.database()).await;
    let standbys = async |wanted: f64, connected: f64| {
        until(async || {
            let scraped = service.metrics().await;
            scraped.metric("petstore_postgres_standbys_wanted") == wanted
                && scraped.metric("petstore_postgres_standbys_connected") == connected
        })
        .await;
    };
    standbys(0.0, 0.0).await;
    server.set("synchronous_standby_names", "ANY 2 (*)");
    standbys(2.0, 0.0).await;
    let _standby = server.standby();
    standbys(2.0, 1.0).await;
}

#[tokio::test]
async fn documentation_matches_the_metrics() {
    let documented = include_str!("../../docs/metrics.md").lines();
    let documented = documented
        .filter_map(|line| Some(line.split_once("): ")?.0.strip_prefix("- `")?.split_once("` (")?.0.to_owned()));
    let sqlite = Service::start().await;
    sqlite.api.backups.set(Arc::default()).unwrap();
    let postgres = Service::start_on_postgresql().await;
    postgres.api.relay.set(Arc::default()).unwrap();
    let encrypted = Transport::tls(|_| {}).await;
    let stream = encrypted.connect_to(encrypted.service.ops_address).await;
    let encrypted = Request::new(encrypted.service.ops_address, "GET", "/metrics").send_over(stream).await;

    let mut written = families(&sqlite.metrics().await.body);
    written.extend(families(&postgres.metrics().await.body));
    written.extend(families(&encrypted.body));

    assert_eq!(documented.collect::<BTreeSet<_>>(), written.keys().cloned().collect());
    for (name, kind) in &written {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    }
}
