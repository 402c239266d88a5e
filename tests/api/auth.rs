//! The API key: who is let in, who is not, and how the refusal is worded.

use std::time::{Duration, Instant};

use petstore::domain::api_key::{KeyName, NewKey, Rotation};
use petstore::domain::{ApiKey, Deployment, KeyHash, Timestamp};
use petstore::store::Store;
use petstore::store::sqlite::{Options, Sqlite};
use sha2::{Digest, Sha256};
use testkit::{Response, raw};

use crate::service::{NOW, Service, Setup};

const NO_KEY: &str = r#"Bearer realm="petstore""#;
const BAD_KEY: &str = r#"Bearer realm="petstore", error="invalid_token""#;

#[tokio::test]
async fn every_operation_requires_a_key() {
    let service = Service::start().await;
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    for request in service.operations() {
        assert_refused(&request.send().await, "missing_api_key", NO_KEY);
    }
    for request in service.operations() {
        assert_refused(&request.key("wrong").send().await, "invalid_api_key", BAD_KEY);
    }
    for request in service.operations() {
        let answer = request.key(&service.key).send().await;
        assert!(answer.head.status.is_success(), "{}", answer.shown());
        assert_eq!(answer.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn rejected_request_has_no_effect() {
    let service = Service::start().await;
    for request in service.operations() {
        assert_eq!(request.key("wrong").send().await.status(), 401);
    }
    let database = service.database();
    for table in ["pets", "orders", "messages"] {
        let count: i64 = database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn other_schemes_are_rejected() {
    let service = Service::start().await;
    let key = &service.key;
    for credential in [
        "Basic YWRhOnNlY3JldA==".to_owned(),
        format!("Token {key}"),
        format!("Bearer2 {key}"),
        format!("Bearer{key}"),
        format!("Bearer={key}"),
        key.clone(),
        String::new(),
    ] {
        let answer = service.request("GET", "/v1/pets").header("authorization", &credential).send().await;
        assert_eq!(answer.code(), "missing_api_key", "{credential}");
        assert_refused(&answer, "missing_api_key", NO_KEY);
    }
    let in_the_query = service.request("GET", &format!("/v1/pets?access_token={key}")).send().await;
    assert_refused(&in_the_query, "missing_api_key", NO_KEY);
    let in_another_header = service.request("GET", "/v1/pets").header("x-api-key", key).send().await;
    assert_refused(&in_another_header, "missing_api_key", NO_KEY);
}

#[tokio::test]
async fn scheme_ignores_case_but_key_does_not() {
    let service = Service::start().await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "] {
        let credential = format!("{scheme} {}", service.key);
        let answer = service.request("GET", "/v1/pets").header("authorization", &credential).send().await;
        assert_eq!(answer.status(), 200, "{scheme}");
    }
    assert_refused(&used(&service, &service.key.to_uppercase()).await, "invalid_api_key", BAD_KEY);
}

#[tokio::test]
async fn malformed_key_is_rejected() {
    let service = Service::start().await;
    let key = &service.key;
    for malformed in [
        String::new(),
        "x".into(),
        key[..key.len() - 1].to_owned(),
        format!("{key}0"),
        format!("{key} {key}"),
        format!("{key},"),
        format!("\"{key}\""),
        key.replace("pet_test_", "pet-test-"),
        key.replace("pet_test_", ""),
        "x".repeat(10_000),
    ] {
        let answer = used(&service, &malformed).await;
        assert_eq!(answer.status(), 401, "{malformed}");
        assert_refused(&answer, "invalid_api_key", BAD_KEY);
    }
    let bytes = b"GET /v1/pets HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer \xff\xfe\r\n\r\n";
    let answer = raw(service.store_address, bytes).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains(r#""invalid_api_key""#), "{answer}");
}

#[tokio::test]
async fn key_has_the_documented_format() {
    for (deployment, prefix) in [(Deployment::Production, "pet_live_"), (Deployment::Staging, "pet_test_")] {
        let service = Service::start_with(Setup { deployment, ..Setup::default() }).await;
        let rest = service.key.strip_prefix(prefix).unwrap();
        let (random, checksum) = rest.split_at(32);
        assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{rest}");
        assert_eq!(checksum, base62(crc32fast::hash(random.as_bytes())));
        assert_eq!(service.get("/v1/pets").await.status(), 200);
    }
}

#[tokio::test]
async fn well_formed_unknown_key_is_rejected() {
    let service = Service::start().await;
    let unknown = ApiKey::generate(Deployment::Staging);
    assert_refused(&used(&service, unknown.expose()).await, "invalid_api_key", BAD_KEY);
}

#[tokio::test]
async fn stored_key_with_wrong_checksum_is_rejected() {
    let service = Service::start().await;
    let mut wrong = service.key.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'a' { 'b' } else { 'a' });
    give_out(&service, &wrong).await;
    assert_refused(&used(&service, &wrong).await, "invalid_api_key", BAD_KEY);

    let right = "pet_test_00000000000000000000000000000000".to_owned() + &base62(crc32fast::hash(&[b'0'; 32]));
    give_out(&service, &right).await;
    assert_eq!(used(&service, &right).await.status(), 200, "the same way in lets a key with a right one pass");
}

#[tokio::test]
async fn stored_key_of_another_deployment_is_rejected() {
    for (own, other) in [(Deployment::Staging, Deployment::Production), (Deployment::Production, Deployment::Staging)] {
        let service = Service::start_with(Setup { deployment: own, ..Setup::default() }).await;
        let theirs = ApiKey::generate(other);
        give_out(&service, theirs.expose()).await;
        assert_refused(&used(&service, theirs.expose()).await, "invalid_api_key", BAD_KEY);
    }
}

#[tokio::test]
async fn impossible_key_is_rejected_without_a_query() {
    let service = Service::start().await;
    service.database().execute_batch("ALTER TABLE api_keys RENAME TO elsewhere").unwrap();
    let mut wrong_checksum = service.key.clone();
    wrong_checksum.replace_range(9..10, if &wrong_checksum[9..10] == "x" { "y" } else { "x" });
    let other_deployment = ApiKey::generate(Deployment::Production);
    for refused in ["wrong", &wrong_checksum, other_deployment.expose()] {
        assert_eq!(used(&service, refused).await.code(), "invalid_api_key", "{refused}");
    }
    let to_look_up = ApiKey::generate(Deployment::Staging);
    assert_eq!(used(&service, to_look_up.expose()).await.code(), "internal_error", "the look-up does fail");
}

#[tokio::test]
async fn two_authorization_headers_are_rejected() {
    let service = Service::start().await;
    let good = format!("Bearer {}", service.key);
    for (first, second) in
        [(good.as_str(), good.as_str()), (&good, "Basic YWRhOnNlY3JldA=="), ("Basic YWRhOnNlY3JldA==", &good)]
    {
        let request = service.request("GET", "/v1/pets").header("authorization", first);
        let answer = request.header("authorization", second).send().await;
        assert_refused(&answer, "invalid_api_key", BAD_KEY);
    }
}

#[tokio::test]
async fn revoked_key_is_rejected_immediately() {
    let service = Service::start().await;
    let (id, key) = service.another_key(None).await;
    assert_eq!(used(&service, &key).await.status(), 200);

    assert!(service.store.revoke_key(id, NOW).await.unwrap());
    service.api.api_keys.note_change();

    assert_refused(&used(&service, &key).await, "invalid_api_key", BAD_KEY);
    assert_eq!(used(&service, &service.key).await.status(), 200, "other keys of the account still work");
}

#[tokio::test]
async fn key_revoked_by_another_process_is_rejected_within_1s() {
    let service = Service::start().await;
    let (id, key) = service.another_key(None).await;
    let elsewhere = Store::Sqlite(Sqlite::open(&Options::new(service.folder.path())).unwrap());
    for request in service.operations() {
        assert_ne!(request.key(&key).send().await.status(), 401);
    }

    assert!(elsewhere.revoke_key(id, NOW).await.unwrap());
    let revoked = Instant::now();
    while used(&service, &key).await.status() != 401 {
        assert!(revoked.elapsed() < Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for request in service.operations() {
        assert_refused(&request.key(&key).send().await, "invalid_api_key", BAD_KEY);
    }
}

#[tokio::test]
async fn key_created_by_another_process_works() {
    let service = Service::start().await;
    let elsewhere = Store::Sqlite(Sqlite::open(&Options::new(service.folder.path())).unwrap());
    let key = ApiKey::generate(elsewhere.deployment());
    assert_eq!(used(&service, key.expose()).await.status(), 401);
    elsewhere.create_key(new_key(&service, key.hash(), None)).await.unwrap();
    assert_eq!(used(&service, key.expose()).await.status(), 200);
}

#[tokio::test]
async fn key_works_until_it_expires() {
    let service = Service::start().await;
    let expiry = NOW.plus(Duration::from_secs(60));
    let (_, key) = service.another_key(Some(expiry)).await;

    service.clock.set(expiry.minus_one_millisecond());
    assert_eq!(used(&service, &key).await.status(), 200);
    service.clock.set(expiry);
    assert_refused(&used(&service, &key).await, "invalid_api_key", BAD_KEY);
    assert_eq!(used(&service, &service.key).await.status(), 200, "a key without an expiry goes on");
}

#[tokio::test]
async fn rotated_key_works_during_the_overlap() {
    let service = Service::start().await;
    let (id, old) = service.another_key(None).await;
    let new = ApiKey::generate(Deployment::Staging);
    let old_until = NOW.plus(Duration::from_secs(3600));
    assert_eq!(used(&service, &old).await.status(), 200);

    let rotation = Rotation { hash: new.hash(), hint: new.hint(), now: NOW, old_until };
    service.store.rotate_key(id, rotation).await.unwrap().unwrap();
    service.api.api_keys.note_change();

    for (now, old_works) in [(NOW, true), (old_until.minus_one_millisecond(), true), (old_until, false)] {
        service.clock.set(now);
        assert_eq!(used(&service, &old).await.status() == 200, old_works, "{now}");
        assert_eq!(used(&service, new.expose()).await.status(), 200, "{now}");
    }
}

#[tokio::test]
async fn last_use_of_a_key_is_stored_to_the_minute() {
    let service = Service::start().await;
    service.get("/v1/pets").await;
    assert_eq!(last_used(&service).await.as_deref(), Some("2026-11-20T09:30:00.000Z"));
    service.clock.set(NOW.plus(Duration::from_secs(60)));
    service.get("/v1/pets").await;
    assert_eq!(last_used(&service).await.as_deref(), Some("2026-11-20T09:31:00.000Z"));
}

#[tokio::test]
async fn database_contains_no_key() {
    let mut service = Service::start().await;
    assert_eq!(service.get("/v1/pets").await.status(), 200);
    let holds = |needle: &[u8]| {
        std::fs::read_dir(service.folder.path()).unwrap().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(needle.len()).any(|window| window == needle)
        })
    };
    assert!(holds(&Sha256::digest(&service.key)), "its hash does");
    assert!(!holds(service.key.as_bytes()));
    assert!(!holds(&service.key.as_bytes()["pet_test_".len()..]));
    service.ask_to_stop(petstore::server::Stop::Drain);
    service.stopped().await;
}

async fn used(service: &Service, key: &str) -> Response {
    service.request("GET", "/v1/pets").key(key).send().await
}

fn assert_refused(answer: &Response, code: &str, challenge: &str) {
    assert_eq!((answer.status(), answer.code().as_str()), (401, code));
    assert_eq!(answer.header("www-authenticate"), Some(challenge));
}

async fn last_used(service: &Service) -> Option<String> {
    service.api.api_keys.flush().await;
    service.store.list_keys().await.unwrap()[0].last_used_at.map(|at| at.to_string())
}

/// Puts any text into the database as a key, as if it had been given out.
async fn give_out(service: &Service, key: &str) {
    let hash = KeyHash(Sha256::digest(key).into());
    service.store.create_key(new_key(service, hash, None)).await.unwrap();
}

fn new_key(service: &Service, hash: KeyHash, expires_at: Option<Timestamp>) -> NewKey {
    let name = KeyName::parse("test".into()).unwrap();
    NewKey { account: service.account, name, hash, hint: "hint".into(), created_at: NOW, expires_at }
}

fn base62(mut number: u32) -> String {
    let alphabet = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut digits = ['0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = char::from(alphabet[(number % 62) as usize]);
        number /= 62;
    }
    digits.iter().collect()
}
