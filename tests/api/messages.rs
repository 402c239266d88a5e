//! Messages, on their own listener.

use std::time::Duration;

use petstore::api::Operation;
use petstore::domain::MessageId;
use serde_json::json;
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
            let answer = service.message(&json!({ "message": text }).to_string()).await.json();
            assert_eq!(answer["message"], text);
            assert!(list(service, "").await.json().as_array().unwrap().contains(&answer), "{text:?}");
        }
    });
}

/// The clock stands still, and is then set back.
#[test]
fn messages_are_listed_by_page_in_the_order_of_acknowledgement() {
    Service::on_every_database(async |service| {
        let (_, stranger) = service.another_account("grace@example.com").await;
        assert_eq!(list(service, "").await.body, "[]");
        let (mut own, mut foreign) = (Vec::new(), Vec::new());
        for number in 0..25 {
            if number == 12 {
                service.clock.set(NOW.minus(Duration::from_secs(60)));
            }
            let (key, sent) = if number % 5 == 4 { (&stranger, &mut foreign) } else { (&service.key, &mut own) };
            let body = json!({ "message": format!("message {number}") }).to_string();
            sent.push(service.message_request().key(key).json(body).send().await.json());
        }
        let id = |position: usize| own[position]["id"].as_str().unwrap();
        let (lowest, highest) = (format!("msg_{}", "0".repeat(32)), format!("msg_{}", "f".repeat(32)));

        for (query, expected, next) in [
            (String::new(), &own[..], None),
            ("?limit=8".to_owned(), &own[..8], Some(format!("limit=8&after={}", id(7)))),
            (format!("?after={}&limit=12", id(7)), &own[8..], None),
            (format!("?limit=1&after={lowest}"), &own[..1], Some(format!("limit=1&after={}", id(0)))),
            // Another account's message is a position like any other id. It was sent after the fourth.
            (
                format!("?after={}&limit=2", foreign[0]["id"].as_str().unwrap()),
                &own[4..6],
                Some(format!("limit=2&after={}", id(5))),
            ),
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
        for _ in 0..3 {
            ids.push(MessageId::parse(service.message(HELLO).await.json()["id"].as_str().unwrap()).unwrap());
        }
        let statuses = async || {
            let page = list(service, "").await.json();
            page.as_array().unwrap().iter().map(|message| message["status"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(statuses().await, ["queued", "queued", "queued"]);
        let acknowledged = ids[..2].iter().map(|id| (service.account, *id)).collect();
        service.store.mark_messages_sent(acknowledged, NOW).await.unwrap();
        assert_eq!(statuses().await, ["sent", "sent", "queued"]);

        assert_eq!(service.store.delete_sent_messages(NOW.plus(Duration::from_millis(1)), 10).await.unwrap(), 2);
        assert_eq!(statuses().await, ["queued"]);
        // A walk continues after a message that was deleted meanwhile.
        assert_eq!(list(service, &format!("?after={}", ids[1])).await.json()[0]["id"], ids[2].to_string());
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
