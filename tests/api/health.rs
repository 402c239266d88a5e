//! `/livez` and `/readyz`, on every listener.

use expect_test::expect;
use testkit::{Request, until};

use crate::service::Service;

#[tokio::test]
async fn every_listener_reports_health_without_a_key() {
    let service = Service::start().await;
    for address in service.addresses() {
        for (path, body) in [("/livez", r#"{"status":"live"}"#), ("/readyz", r#"{"status":"ready"}"#)] {
            for (method, body) in [("GET", body), ("HEAD", "")] {
                until(async || {
                    let answer = Request::new(address, method, path).send().await;
                    assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
                    assert!(path == "/readyz" || answer.status() == 200, "{address} {method}");
                    (answer.status(), answer.body.as_str()) == (200, body)
                })
                .await;
            }
        }
    }
}

#[tokio::test]
async fn service_without_database_is_live_but_not_ready() {
    let service = Service::start().await;
    assert_eq!(service.get("/v1/pets").await.status(), 200);

    service.store.close().await;

    expect![[r#"
        503 Service Unavailable
        retry-after: 1

        {"code":"unavailable","message":"The service is not ready: its database does not respond correctly.","status":503}
    "#]]
    .assert_eq(&service.get("/readyz").await.shown());
    for address in service.addresses() {
        assert_eq!(Request::new(address, "GET", "/livez").send().await.status(), 200);
        assert_eq!(Request::new(address, "GET", "/readyz").send().await.code(), "unavailable");
    }
    for request in service.operations() {
        let answer = request.key(&service.key).send().await;
        assert_eq!((answer.code().as_str(), answer.header("retry-after")), ("unavailable", Some("1")));
    }
}

#[tokio::test]
async fn database_without_tables_is_not_ready() {
    let service = Service::start().await;
    service.sql("ALTER TABLE meta RENAME TO elsewhere");
    assert!(service.get("/readyz").await.head.status.is_server_error());
    assert_eq!(service.get("/livez").await.status(), 200);
}
