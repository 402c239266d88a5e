//! `sendMessage`, on its own listener.

use petstore::domain::MessageId;
use petstore::http::Operation;
use serde_json::{Value, json};
use testkit::Request;

use crate::service::{HELLO, NOW, Service};

#[tokio::test]
async fn message_is_queued() {
    let service = Service::start().await;

    // Other fields of the body are ignored.
    let body = r#"{"status":"sent","id":3,"message":"Hello, store!","createdAt":null,"id":4}"#;
    let answer = service.message(body).await;

    assert_eq!((answer.status(), answer.header("content-type")), (202, Some("application/json")));
    let body = answer.json();
    let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "message", "status", "createdAt"]);
    assert!(MessageId::parse(body["id"].as_str().unwrap()).is_some(), "{body}");
    assert_eq!(body["message"], "Hello, store!");
    assert_eq!(body["status"], "queued");
    assert_eq!(body["createdAt"], "2026-11-20T09:30:00.123Z");
}

#[tokio::test]
async fn acknowledged_message_is_stored_for_its_account() {
    let service = Service::start().await;
    let (other_account, other_key) = service.another_account("grace@example.com").await;
    for (key, account) in [(&service.key, service.account), (&other_key, other_account)] {
        let answer = service.message_request().key(key).json(HELLO).send().await.json();

        let (messages, _) = service.store.list_messages_of(account, None, 10).await.unwrap();
        let [(message, None)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(answer["id"], message.id.to_string());
        assert_eq!(message.created_at, NOW);
    }
}

#[tokio::test]
async fn text_is_stored_unchanged() {
    Service::on_every_database(async |service| {
        let longest = "🦊".repeat(10_000);
        for text in [" a\tb\r\nc ", "\u{feff}ß\u{2029}e\u{301}", "\"\\/", "x", &longest] {
            let answer = service.message(&json!({ "message": text }).to_string()).await;
            assert_eq!(answer.status(), 202, "{}", answer.body);
            assert_eq!(answer.json()["message"], text);
            let (messages, _) = service.store.list_messages_of(service.account, None, 10).await.unwrap();
            assert!(messages.iter().any(|(message, _)| message.text.as_str() == text), "{text:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_text_is_rejected_and_not_queued() {
    let service = Service::start().await;
    let long = "x".repeat(10_001);
    let cases: [(Value, &str); 10] = [
        (json!({}), "missing_field"),
        (json!({ "Message": "Hello" }), "missing_field"),
        (json!({ "message": null }), "invalid_value"),
        (json!({ "message": 3 }), "invalid_value"),
        (json!({ "message": ["Hello"] }), "invalid_value"),
        (json!({ "message": "" }), "invalid_value"),
        (json!({ "message": " \t\r\n\u{2003}" }), "invalid_value"),
        (json!({ "message": "a\u{0}b" }), "invalid_value"),
        (json!({ "message": "a\u{85}b" }), "invalid_value"),
        (json!({ "message": long }), "invalid_value"),
    ];
    for (body, code) in cases {
        let shown: String = body.to_string().chars().take(60).collect();
        let answer = service.message(&body.to_string()).await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, code), "{shown}");
        assert!(answer.body.contains("`message`"), "{shown}: {}", answer.body);
    }
    assert_eq!(service.store.count_unsent_messages(1).await.unwrap(), 0);
}

#[tokio::test]
async fn operations_are_on_their_own_listener_only() {
    let service = Service::start().await;
    for operation in Operation::documented() {
        let path = operation.path().replace("{petId}", "1").replace("{orderId}", "1");
        for address in service.addresses().into_iter().filter(|address| *address != service.address_of(operation)) {
            let answer = Request::new(address, operation.method().as_str(), &path).key(&service.key).send().await;
            assert_eq!(answer.code(), "not_found", "{operation:?} at {address}");
            // The operator's listener names no address.
            let names_address = address != service.ops_address;
            let owner = format!("`http://{}/v1`", service.address_of(operation));
            assert_eq!(answer.body.contains(&owner), names_address, "{}", answer.shown());
        }
    }
}
