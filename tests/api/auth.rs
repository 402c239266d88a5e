//! API keys: the credentials that are accepted, and the challenge in every 401.
//!
//! `verification/tests/promises/without_key.rs` tries more of them with every operation.

use std::time::Duration;

use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::{ApiKey, Deployment, KeyHash};
use petstore::store::Store;
use petstore::store::sqlite::{Options, Sqlite};
use sha2::{Digest, Sha256};
use testkit::Response;

use crate::service::{NOW, OPERATOR, Service, Setup};

const NO_KEY: &str = r#"Bearer realm="petstore""#;
const BAD_KEY: &str = r#"Bearer realm="petstore", error="invalid_token""#;

#[tokio::test]
async fn other_schemes_and_places_are_no_credential() {
    let service = Service::start().await;
    let key = &service.key;
    let list = |query: &str| service.request("GET", &format!("/v1/pets{query}"));
    let mut requests = vec![list(""), list(&format!("?access_token={key}")), list("").header("x-api-key", key)];
    for credential in ["Basic YWRhOnNlY3JldA==", &format!("Token {key}"), &format!("Bearer2 {key}"), key, ""] {
        requests.push(list("").header("authorization", credential));
    }
    for request in requests {
        assert_rejected(&request.send().await, "missing_api_key", NO_KEY, "no credential");
    }
}

#[tokio::test]
async fn scheme_ignores_case_but_key_does_not() {
    let service = Service::start().await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "] {
        let credential = format!("{scheme} {}", service.key);
        let answer = service.request("GET", "/v1/pets").header("authorization", &credential).send().await;
        assert_eq!((answer.status(), answer.header("www-authenticate")), (200, None), "{scheme}");
    }
    assert_invalid(&service, &service.key.to_uppercase()).await;
}

#[tokio::test]
async fn stored_key_of_another_deployment_is_rejected() {
    for (own, other) in [(Deployment::Staging, Deployment::Production), (Deployment::Production, Deployment::Staging)] {
        let service = Service::start_with(Setup { deployment: own, ..Setup::default() }).await;
        let theirs = ApiKey::generate(other);
        store(&service, theirs.expose()).await;
        assert_invalid(&service, theirs.expose()).await;
    }
}

#[tokio::test]
async fn impossible_key_is_rejected_without_a_query() {
    let service = Service::start().await;
    service.database().execute_batch("ALTER TABLE api_keys RENAME TO elsewhere").unwrap();
    let mut wrong_checksum = service.key.clone();
    wrong_checksum.replace_range(9..10, if &wrong_checksum[9..10] == "x" { "y" } else { "x" });
    for impossible in ["wrong", &wrong_checksum, ApiKey::generate(Deployment::Production).expose()] {
        assert_invalid(&service, impossible).await;
    }
    // Control: a query fails.
    let possible = ApiKey::generate(Deployment::Staging);
    assert_eq!(list(&service, possible.expose()).await.code(), "internal_error");
}

#[tokio::test]
async fn key_created_by_another_process_works() {
    let service = Service::start().await;
    let elsewhere = Store::Sqlite(Sqlite::open(&Options::new(service.folder.path())).unwrap());
    let key = ApiKey::generate(elsewhere.deployment());
    assert_invalid(&service, key.expose()).await;
    elsewhere.create_key(new_key(&service, key.hash()), OPERATOR).await.unwrap();
    assert_eq!(list(&service, key.expose()).await.status(), 200);
}

#[tokio::test]
async fn key_works_until_it_expires() {
    let service = Service::start().await;
    let expiry = NOW.plus(Duration::from_secs(60));
    let (_, key) = service.another_key(Some(expiry)).await;

    service.clock.set(expiry.minus(Duration::from_millis(1)));
    assert_eq!(list(&service, &key).await.status(), 200);
    service.clock.set(expiry);
    assert_invalid(&service, &key).await;
    assert_eq!(service.get("/v1/pets").await.status(), 200, "a key without an expiry still works");
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

async fn list(service: &Service, key: &str) -> Response {
    service.request("GET", "/v1/pets").key(key).send().await
}

async fn assert_invalid(service: &Service, key: &str) {
    assert_rejected(&list(service, key).await, "invalid_api_key", BAD_KEY, key);
}

fn assert_rejected(answer: &Response, code: &str, challenge: &str, case: &str) {
    assert_eq!((answer.status(), answer.code().as_str()), (401, code), "{case}");
    assert_eq!(answer.header("www-authenticate"), Some(challenge), "{case}");
}

/// Stores any text as a key.
async fn store(service: &Service, key: &str) {
    let hash = KeyHash(Sha256::digest(key).into());
    service.store.create_key(new_key(service, hash), OPERATOR).await.unwrap();
}

fn new_key(service: &Service, hash: KeyHash) -> NewKey {
    let name = KeyName::parse("test".into()).unwrap();
    NewKey { hash, ..NewKey::of(&ApiKey::generate(Deployment::Staging), service.account, name, NOW, None) }
}
