//! `sendMessage`, on its own door.

use petstore::domain::Timestamp;
use serde_json::{Value, json};
use testkit::Request;

use crate::service::{NOW, Service};

#[tokio::test]
async fn message_is_queued() {
    let service = Service::start().await;

    let answer = service.message(r#"{"message":"Hello, store!"}"#).await;

    assert_eq!(answer.status(), 202);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json();
    let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "message", "status", "createdAt"]);
    assert_eq!(body["message"], "Hello, store!");
    assert_eq!(body["status"], "queued");
    assert_eq!(body["createdAt"], "2026-11-20T09:30:00.123Z");
}

#[tokio::test]
async fn timestamp_always_has_milliseconds() {
    let service = Service::start().await;
    service.clock.set(Timestamp::from_milliseconds(NOW.as_milliseconds() - 123));
    let answer = service.message(r#"{"message":"Hello"}"#).await;
    assert_eq!(answer.json()["createdAt"], "2026-11-20T09:30:00.000Z");
}

#[tokio::test]
async fn message_id_is_a_unique_uuid_v7() {
    let service = Service::start().await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let answer = service.message(r#"{"message":"Hello"}"#).await;
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let digits = id.strip_prefix("msg_").unwrap();
        assert_eq!(digits.len(), 32, "{id}");
        assert!(digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
        let uuid = uuid::Uuid::parse_str(digits).unwrap();
        assert_eq!(uuid.get_version_num(), 7, "{id}");
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122, "{id}");
        assert_eq!(i64::from_str_radix(&digits[..12], 16).unwrap(), NOW.as_milliseconds(), "{id}");
        assert!(seen.insert(id));
    }
}

#[tokio::test]
async fn acknowledged_message_is_stored_for_its_account() {
    let service = Service::start().await;
    let (other_account, other_key) = service.another_account("grace@example.com").await;
    let database = service.database();
    for (key, account) in [(&service.key, service.account), (&other_key, other_account)] {
        let text = format!("from {}", account.0);
        let body = json!({ "message": text }).to_string();
        let answer = service.message_request().key(key).json(body).send().await.json();

        let sql = "SELECT hex(id), account_id, created_at FROM messages WHERE message = ?1";
        let row = database.query_row(sql, [&text], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (id, owner, created_at) = row.unwrap();
        assert_eq!(answer["id"], format!("msg_{}", id.to_lowercase()));
        assert_eq!(owner, account.0);
        assert_eq!(created_at, NOW.as_milliseconds());
    }
}

#[tokio::test]
async fn text_is_stored_unchanged() {
    let service = Service::start().await;
    let longest = "🦊".repeat(10_000);
    for text in [" a\tb\r\nc ", "\u{feff}ß\u{2029}e\u{301}", "\"\\/", "x", &longest] {
        let answer = service.message(&json!({ "message": text }).to_string()).await;
        assert_eq!(answer.status(), 202, "{}", answer.body);
        assert_eq!(answer.json()["message"], text);
        let count = "SELECT count(*) FROM messages WHERE message = ?1";
        let kept: i64 = service.database().query_row(count, [text], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1, "{text:?}");
    }
}

#[tokio::test]
async fn other_fields_are_ignored() {
    let service = Service::start().await;
    let body = r#"{"status":"sent","id":3,"message":"Hello","createdAt":null,"id":4}"#;
    let answer = service.message(body).await;
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.json()["status"], "queued");
    assert!(answer.json()["id"].as_str().unwrap().starts_with("msg_"));
}

#[tokio::test]
async fn invalid_text_is_rejected_and_not_queued() {
    let service = Service::start().await;
    let long = "x".repeat(10_001);
    let cases: [(Value, &str); 14] = [
        (json!({}), "missing_field"),
        (json!({ "Message": "Hello" }), "missing_field"),
        (json!({ "message": null }), "invalid_value"),
        (json!({ "message": 3 }), "invalid_value"),
        (json!({ "message": true }), "invalid_value"),
        (json!({ "message": ["Hello"] }), "invalid_value"),
        (json!({ "message": { "text": "Hello" } }), "invalid_value"),
        (json!({ "message": "" }), "invalid_value"),
        (json!({ "message": " \t\r\n\u{2003}" }), "invalid_value"),
        (json!({ "message": "a\u{0}b" }), "invalid_value"),
        (json!({ "message": "a\u{b}b" }), "invalid_value"),
        (json!({ "message": "a\u{7f}b" }), "invalid_value"),
        (json!({ "message": "a\u{85}b" }), "invalid_value"),
        (json!({ "message": long }), "invalid_value"),
    ];
    for (body, code) in cases {
        let shown: String = body.to_string().chars().take(60).collect();
        let answer = service.message(&body.to_string()).await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, code), "{shown}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`message`"), "{shown}: {message}");
    }
    let queued: i64 = service.database().query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).unwrap();
    assert_eq!(queued, 0);
}

#[tokio::test]
async fn messages_and_animals_have_separate_listeners() {
    let service = Service::start().await;
    let at_the_store = service.post("/v1/messages", r#"{"message":"Hello"}"#).await;
    assert_eq!(at_the_store.code(), "not_found");
    let at_messages = Request::new(service.messages_address, "GET", "/v1/pets").key(&service.key);
    assert_eq!(at_messages.send().await.code(), "not_found");
    for (method, path) in [("GET", "/v1/pets"), ("POST", "/v1/messages")] {
        let at_operations = Request::new(service.ops_address, method, path).key(&service.key);
        assert_eq!(at_operations.send().await.code(), "not_found", "{path}");
    }
}
