//! Messages, on their own listener.

use std::time::Duration;

use petstore::api::Operation;
use petstore::domain::{MessageId, Timestamp};
use serde_json::{Value, json};
use testkit::{Request, Response, fields};

use crate::service::{HELLO, NOW, Service};

#[tokio::test]
async fn message_is_queued() {
    let service = Service::start().await;

    // Other fields of the body are ignored.
    let body = r#"{"status":"sent","id":3,"message":"Hello, store!","createdAt":null,"id":4}"#;
    let answer = service.message(body).await;

    assert_eq!((answer.status(), answer.header("content-type")), (202, Some("application/json")));
    let body = answer.json();
    assert_eq!(fields(&body), ["id", "message", "status", "createdAt"]);
    assert!(MessageId::parse(body["id"].as_str().unwrap()).is_some(), "{body}");
    assert_eq!(body["message"], "Hello, store!");
    assert_eq!(body["status"], "queued");
    assert_eq!(body["createdAt"], "2026-11-20T09:30:00.123Z");
}

#[test]
fn text_is_stored_unchanged() {
    Service::on_every_database(async |service| {
        let longest = "🦊".repeat(10_000);
        for text in [" a\tb\r\nc ", "\u{feff}ß\u{2029}e\u{301}", "\"\\/", "x", &longest] {
            let answer = service.message(&json!({ "message": text }).to_string()).await;
            assert_eq!(answer.status(), 202, "{}", answer.body);
            assert_eq!(answer.json()["message"], text);
            let messages = service.messages_of(service.account).await;
            assert!(messages.iter().any(|(message, _)| message.text.as_str() == text), "{text:?}");
        }
    });
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

#[test]
fn messages_are_listed_oldest_first_by_page() {
    Service::on_every_database(async |service| {
        let (_, stranger) = service.another_account("grace@example.com").await;
        assert_eq!(list(service, "").await.body, "[]");
        let mut sent = Vec::new();
        for number in 0..25 {
            service.clock.advance(Duration::from_millis(1));
            let key = if number % 5 == 4 { &stranger } else { &service.key };
            let body = json!({ "message": format!("message {number}") }).to_string();
            let answer = service.message_request().key(key).json(body).send().await.json();
            sent.push((key == &service.key, answer));
        }
        let own: Vec<_> = sent.iter().filter(|(own, _)| *own).map(|(_, message)| message.clone()).collect();
        let foreign = sent.iter().find(|(own, _)| !own).unwrap().1["id"].as_str().unwrap();
        let id = |position: usize| own[position]["id"].as_str().unwrap();
        let lowest = format!("msg_{}", "0".repeat(32));
        let highest = format!("msg_{}", "f".repeat(32));

        for (query, expected, next) in [
            (String::new(), &own[..], None),
            ("?limit=8".to_owned(), &own[..8], Some(format!("limit=8&after={}", id(7)))),
            (format!("?after={}&limit=12", id(7)), &own[8..], None),
            (format!("?limit=1&after={lowest}"), &own[..1], Some(format!("limit=1&after={}", id(0)))),
            // Another account's message is a position like any other id. It was sent after the fourth.
            (format!("?after={foreign}&limit=2"), &own[4..6], Some(format!("limit=2&after={}", id(5)))),
            (format!("?after={}", id(19)), &[], None),
            (format!("?after={highest}"), &[], None),
        ] {
            let page = list(service, &query).await;
            assert_eq!((page.status(), page.json()), (200, json!(expected)), "{query}");
            assert_eq!(page.next_page(), next.map(|next| format!("/v1/messages?{next}")), "{query}");
        }
    });
}

#[test]
fn messages_are_listed_as_sent_until_they_are_deleted() {
    Service::on_every_database(async |service| {
        let mut ids = Vec::new();
        for text in ["first", "second", "third"] {
            service.clock.advance(Duration::from_millis(1));
            let sent = service.message(&json!({ "message": text }).to_string()).await.json();
            ids.push(sent["id"].as_str().unwrap().to_owned());
        }
        let statuses = async || {
            let page = list(service, "").await.json();
            let status = |message: &Value| message["status"].as_str().unwrap().to_owned();
            page.as_array().unwrap().iter().map(status).collect::<Vec<_>>()
        };
        assert_eq!(statuses().await, ["queued", "queued", "queued"]);
        let acknowledged = ids[..2].iter().map(|id| (service.account, MessageId::parse(id).unwrap())).collect();
        let sent_at = NOW.plus(Duration::from_secs(1));
        service.store.mark_messages_sent(acknowledged, sent_at).await.unwrap();
        assert_eq!(statuses().await, ["sent", "sent", "queued"]);

        let later = sent_at.plus(Duration::from_millis(1));
        assert_eq!(service.store.delete_sent_messages(later, 10).await.unwrap(), 2);
        assert_eq!(statuses().await, ["queued"]);
        // A walk continues after a message that was deleted meanwhile.
        let rest = list(service, &format!("?after={}", ids[1])).await;
        assert_eq!(rest.json()[0]["message"], "third");
    });
}

/// The clock stands still, and is then set back.
#[test]
fn messages_are_listed_in_the_order_of_their_acknowledgements() {
    Service::on_every_database(async |service| {
        let mut sent = Vec::new();
        for number in 0..20 {
            if number == 10 {
                service.clock.set(Timestamp::from_milliseconds(NOW.as_milliseconds() - 60_000));
            }
            sent.push(service.message(HELLO).await.json()["id"].clone());
        }
        let listed = list(service, "?limit=20").await.json();
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
        assert_eq!(listed, sent);
    });
}

async fn list(service: &Service, query: &str) -> Response {
    let path = format!("/v1/messages{query}");
    Request::new(service.messages_address, "GET", &path).key(&service.key).send().await
}

#[tokio::test]
async fn operations_are_on_their_own_listener_only() {
    let service = Service::start().await;
    for operation in Operation::documented() {
        let path = operation.path_of(Some(1));
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
