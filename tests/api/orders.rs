//! The store area.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use testkit::Response;

use crate::service::{NOW, Service};

#[test]
fn order_is_placed_approved_and_delivered() {
    Service::with_pets_on_every_database(2, async |service| {
        expect![[r#"
            201 Created
            location: http://HOST/v1/store/orders/1

            {"id":1,"petId":2,"accountId":1,"status":"placed","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:30:00.123Z"}
        "#]]
        .assert_eq(&place(service, 2).await.shown());
        assert_eq!(status_of_pet(service, 2).await, "pending");

        service.clock.set(NOW.plus(Duration::from_secs(60)));
        expect![[r#"
            200 OK

            {"id":1,"petId":2,"accountId":1,"status":"approved","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:31:00.123Z"}
        "#]]
        .assert_eq(&change(service, 1, "approve").await.shown());
        assert_eq!(status_of_pet(service, 2).await, "pending");

        // A clock that was set back does not decrease `updatedAt`.
        service.clock.set(NOW);
        let delivered = r#"{"id":1,"petId":2,"accountId":1,"status":"delivered","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:31:00.123Z"}"#;
        assert_eq!(change(service, 1, "deliver").await.body, delivered);
        assert_eq!(status_of_pet(service, 2).await, "sold");
        assert_eq!(service.get("/v1/store/orders").await.body, format!("[{delivered}]"));
        assert_eq!(service.get("/v1/store/orders/1").await.body, delivered);
    });
}

#[test]
fn order_is_read_at_its_location() {
    Service::with_pets_on_every_database(2, async |service| {
        for placed in [place(service, 2).await, place(service, 1).await] {
            let address = format!("http://{}", service.store_address);
            let path = placed.header("location").unwrap().strip_prefix(&address).unwrap();
            assert_eq!(service.get(path).await.body, placed.body, "{path}");
        }

        // The response does not reveal that the order exists.
        let (_, stranger) = service.another_account("grace@example.com").await;
        let foreign = service.request("GET", "/v1/store/orders/1").key(&stranger).send().await;
        let missing = service.get("/v1/store/orders/3").await;
        assert_eq!((foreign.code().as_str(), foreign.body), ("not_found", missing.body));
    });
}

#[test]
fn other_transitions_are_409_without_effect() {
    Service::with_pets_on_every_database(4, async |service| {
        for (id, transitions, rejected, (status, needed, wanted)) in [
            (1, "", "deliver", ("placed", "`approved`", "delivered")),
            (2, "approve", "approve", ("approved", "`placed`", "approved")),
            (3, "approve deliver", "approve deliver cancel", ("delivered", "`placed` or `approved`", "cancelled")),
            (4, "cancel", "approve cancel deliver", ("cancelled", "`approved`", "delivered")),
        ] {
            place(service, id).await;
            for transition in transitions.split_whitespace() {
                assert_eq!(change(service, id, transition).await.status(), 200, "{id} {transition}");
            }
            let state = async || [service.get("/v1/store/orders").await.body, service.get("/v1/pets").await.body];
            let before = state().await;
            service.clock.advance(Duration::from_secs(1));
            let mut message = Value::Null;
            for transition in rejected.split(' ') {
                let answer = change(service, id, transition).await;
                assert_eq!(answer.code(), "conflict", "{id} {transition}");
                message = answer.json()["message"].take();
            }
            assert_eq!(message, format!("The order is `{status}`; only one that is {needed} can become `{wanted}`."));
            assert_eq!(state().await, before);
        }
    });
}

#[test]
fn only_available_animals_can_be_ordered() {
    Service::with_pets_on_every_database(2, async |service| {
        for status in ["pending", "sold"] {
            service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":1,"status":"{status}"}}"#)).await;
        }
        place(service, 2).await;
        change(service, 1, "approve").await;
        assert_eq!(change(service, 1, "deliver").await.json()["status"], "delivered");
        for (code, ids) in [("conflict", &[2, 3, 4][..]), ("not_found", &[0, -1, 5, i64::MIN, i64::MAX])] {
            for id in ids {
                assert_eq!(place(service, *id).await.code(), code, "{id}");
            }
        }
        assert_eq!(service.ids("/v1/store/orders").await, [1]);
        assert_eq!(status_of_pet(service, 3).await, "pending");
    });
}

#[test]
fn order_lists_are_paginated_like_animals() {
    Service::with_pets_on_every_database(25, async |service| {
        for id in 1..=25 {
            place(service, id).await;
            if id % 3 == 0 {
                change(service, id, "cancel").await;
            }
        }
        for (query, expected, next) in [
            ("", (1..=20).collect::<Vec<_>>(), Some("limit=20&after=20")),
            ("?after=20", (21..=25).collect(), None),
            ("?limit=25", (1..=25).collect(), None),
            ("?limit=2&after=-9223372036854775808", vec![1, 2], Some("limit=2&after=2")),
            ("?status=cancelled&limit=3", vec![3, 6, 9], Some("limit=3&status=cancelled&after=9")),
            ("?status=cancelled&after=18", vec![21, 24], None),
            ("?status=placed&after=22", vec![23, 25], None),
            ("?status=approved", vec![], None),
            ("?after=9223372036854775807", vec![], None),
        ] {
            service.assert_page("/v1/store/orders", query, &expected, next).await;
        }
    });
}

#[tokio::test]
async fn transition_body_is_optional_but_validated() {
    let service = Service::with_pets(7).await;
    for id in 1..=7 {
        place(&service, id).await;
    }
    let approve = |id: i64| service.step(&service.key, id, "approve");
    for (rejected, code) in [
        (approve(1).json("{"), "invalid_json"),
        (approve(1).json("[]"), "invalid_json"),
        (approve(1).json(" "), "invalid_json"),
        (approve(1).json(b"\"\xff\""), "invalid_json"),
        (approve(1).body("{}"), "unsupported_media_type"),
    ] {
        assert_eq!(rejected.send().await.code(), code);
    }
    for accepted in [
        approve(1),
        approve(2).header("content-length", "0"),
        approve(3).header("content-type", "application/json"),
        approve(4).header("content-type", "application/x-www-form-urlencoded"),
        approve(5).json("{}"),
        approve(6).json(r#"{"status":"delivered","id":1}"#),
        approve(7).header("accept", "text/plain"),
    ] {
        assert_eq!(accepted.send().await.json()["status"], "approved");
    }
}

#[tokio::test]
async fn order_requires_integer_pet_id_and_ignores_the_rest() {
    let service = Service::with_pets(3).await;
    for (code, bodies) in [
        ("invalid_json", &["", "[]", r#"{"petId":1,"petId":1}"#][..]),
        ("missing_field", &["{}", r#"{"petid":1}"#]),
        ("invalid_value", &[r#"{"petId":"1"}"#, r#"{"petId":1.5}"#, r#"{"petId":9223372036854775808}"#]),
    ] {
        for body in bodies {
            assert_eq!(service.post("/v1/store/orders", body).await.code(), code, "{body}");
        }
    }
    for (id, body) in
        (1..).zip([r#"{"petId":1.0}"#, r#"{"petId":2,"status":"delivered","id":77,"quantity":3}"#, r#"{"petId":3e0}"#])
    {
        let order = service.post("/v1/store/orders", body).await.json();
        assert_eq!([&order["id"], &order["petId"], &order["status"]], [&json!(id), &json!(id), &json!("placed")]);
    }
}

async fn place(service: &Service, pet: i64) -> Response {
    service.order(&service.key, pet).send().await
}

async fn change(service: &Service, order: i64, transition: &str) -> Response {
    service.step(&service.key, order, transition).send().await
}

async fn status_of_pet(service: &Service, id: i64) -> Value {
    service.get(&format!("/v1/pets/{id}")).await.json()["status"].take()
}
