//! API keys: the challenge in a 401, and what the service does not look up again.
//!
//! `verification/tests/promises/without_key.rs` tries all kinds of wrong credentials with every operation.

use std::time::Duration;

use expect_test::expect;
use futures_util::future::join_all;
use petstore::domain::{ApiKey, Deployment};
use testkit::{Response, until};

use crate::service::{NOW, OPERATOR, Service};

#[tokio::test]
async fn missing_and_invalid_key_have_different_challenges() {
    let service = Service::start().await;
    for elsewhere in [
        service.request("GET", &format!("/v1/pets?access_token={}", service.key)),
        service.request("GET", "/v1/pets").header("x-api-key", &service.key),
    ] {
        expect![[r#"
            401 Unauthorized
            www-authenticate: Bearer realm="petstore"

            {"code":"missing_api_key","message":"An API key is needed: send it as `Authorization: Bearer <API_KEY>`.","status":401}
        "#]]
        .assert_eq(&elsewhere.send().await.shown());
    }
    expect![[r#"
        401 Unauthorized
        www-authenticate: Bearer realm="petstore", error="invalid_token"

        {"code":"invalid_api_key","message":"The API key is not valid here.","status":401}
    "#]]
    .assert_eq(&list(&service, "pet_test_x").await.shown());
}

#[tokio::test]
async fn impossible_key_is_rejected_without_a_query() {
    let service = Service::start().await;
    service.sql("ALTER TABLE api_keys RENAME TO elsewhere");
    let mut wrong_checksum = service.key.clone();
    wrong_checksum.replace_range(9..10, if &wrong_checksum[9..10] == "x" { "y" } else { "x" });
    for impossible in ["wrong", &wrong_checksum, ApiKey::generate(Deployment::Production).expose()] {
        assert_eq!(list(&service, impossible).await.code(), "invalid_api_key");
    }
    // Control: a query fails.
    let possible = ApiKey::generate(Deployment::Staging);
    assert_eq!(list(&service, possible.expose()).await.code(), "internal_error");
}

#[tokio::test]
async fn key_created_by_another_process_works() {
    let service = Service::start().await;
    let key = ApiKey::generate(Deployment::Staging);
    assert_eq!(list(&service, key.expose()).await.code(), "invalid_api_key");
    let hash = key.hash().0.map(|byte| format!("{byte:02x}")).concat();
    service.sql(&format!(
        "INSERT INTO api_keys (account_id, name, hash, hint, created_at) VALUES ({}, 'test', x'{hash}', '', 1)",
        service.account.0
    ));
    assert_eq!(list(&service, key.expose()).await.status(), 200);
}

#[tokio::test]
async fn last_use_of_a_key_is_stored_to_the_minute() {
    let service = Service::start().await;
    for (second, stored) in [(0, "2026-11-20T09:30:00.000Z"), (60, "2026-11-20T09:31:00.000Z")] {
        service.clock.set(NOW.plus(Duration::from_secs(second)));
        service.get("/v1/pets").await;
        service.api.api_keys.flush().await;
        let last_used = service.store.list_keys().await.unwrap()[0].last_used_at;
        assert_eq!(last_used.map(|at| at.to_string()).as_deref(), Some(stored));
    }
}

#[test]
fn suspension_ends_a_batch_of_writes_and_loses_none() {
    Service::on_every_database(async |service| {
        let (account, key) = service.another_account("grace@example.com").await;
        let sent = async || service.message_request().key(&key).json(r#"{"message":"Hello"}"#).send().await;
        assert_eq!(sent().await.status(), 202);
        let suspend = async || service.store.set_suspended(account, true, OPERATOR).await.unwrap();

        // The store is changed as by another process.
        let (answers, _) = tokio::join!(join_all((0..50).map(|_| sent())), suspend());
        until(async || sent().await.status() == 401).await;

        assert!(answers.iter().all(|answer| answer.status() == 202 || answer.code() == "invalid_api_key"));
        let queued = service.sql("SELECT count(*) FROM messages");
        assert!(answers.iter().filter(|answer| answer.status() == 202).count() < queued.parse().unwrap());
        assert_eq!(sent().await.code(), "invalid_api_key");
        assert_eq!(service.sql("SELECT count(*) FROM messages"), queued);

        service.store.set_suspended(account, false, OPERATOR).await.unwrap();
        until(async || sent().await.status() == 202).await;
    });
}

async fn list(service: &Service, key: &str) -> Response {
    service.request("GET", "/v1/pets").key(key).send().await
}
