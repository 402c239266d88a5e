//! The store area.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use testkit::Response;

use crate::service::{LARGEST, NOW, Service};

#[test]
fn order_is_placed_approved_and_delivered() {
    Service::with_pets_on_every_database(1, async |service| {
        expect![[r#"
            201 Created
            content-type: application/json
            cache-control: no-store
            x-content-type-options: nosniff
            location: http://HOST/v1/store/orders/1

            {"id":1,"petId":1,"accountId":1,"status":"placed","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:30:00.123Z"}
        "#]]
        .assert_eq(&place(service, 1).await.shown());
        assert_eq!(status_of_pet(service, 1).await, "pending");

        service.clock.set(NOW.plus(Duration::from_secs(60)));
        expect![[r#"
            200 OK
            content-type: application/json
            cache-control: no-store
            x-content-type-options: nosniff

            {"id":1,"petId":1,"accountId":1,"status":"approved","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:31:00.123Z"}
        "#]]
        .assert_eq(&change(service, 1, "approve").await.shown());
        assert_eq!(status_of_pet(service, 1).await, "pending");

        // A clock that was set back does not decrease `updatedAt`.
        service.clock.set(NOW);
        let delivered = r#"{"id":1,"petId":1,"accountId":1,"status":"delivered","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:31:00.123Z"}"#;
        assert_eq!(change(service, 1, "deliver").await.body, delivered);
        assert_eq!(status_of_pet(service, 1).await, "sold");
        assert_eq!(service.get("/v1/store/orders").await.body, format!("[{delivered}]"));
        assert_eq!(service.get("/v1/store/orders/1").await.body, delivered);
    });
}

#[test]
fn order_is_read_at_its_location() {
    Service::with_pets_on_every_database(2, async |service| {
        let (first, second) = (place(service, 2).await, place(service, 1).await);
        for placed in [&first, &second] {
            let address = format!("http://{}", service.store_address);
            let path = placed.header("location").unwrap().strip_prefix(&address).unwrap();
            let read = service.get(path).await;
            assert_eq!((read.status(), &read.body), (200, &placed.body), "{path}");
            let head = service.request("HEAD", path).key(&service.key).send().await;
            assert_eq!((head.status(), head.body.as_str()), (200, ""), "{path}");
        }
        // A status is visible as soon as its transition is acknowledged.
        let approved = change(service, 1, "approve").await;
        assert_eq!(service.get("/v1/store/orders/1").await.body, approved.body);

        let (_, stranger) = service.another_account("grace@example.com").await;
        let foreign = service.request("GET", "/v1/store/orders/1").key(&stranger).send().await;
        let expected = r#"{"code":"not_found","message":"You have no order with this id.","status":404}"#;
        assert_eq!(foreign.body, expected, "the response does not reveal that the order exists");
        for path in ["3", "0", "-1", "9223372036854775807", "9223372036854775808", "1.0", "x", "%31x"] {
            let path = format!("/v1/store/orders/{path}");
            assert_eq!(service.get(&path).await.body, expected, "{path}");
            assert_eq!(service.request("GET", &path).send().await.code(), "missing_api_key", "{path}");
        }
        assert_eq!(service.get("/v1/store/orders/1?limit=1").await.code(), "unknown_parameter");
        let other_method = service.request("DELETE", "/v1/store/orders/1").key(&service.key).send().await;
        assert_eq!((other_method.status(), other_method.header("allow")), (405, Some("GET,HEAD")));
    });
}

#[test]
fn other_transitions_are_409_without_effect() {
    Service::with_pets_on_every_database(4, async |service| {
        let states: [(i64, &[&str], &[&str]); 4] = [
            (1, &[], &["deliver"]),
            (2, &["approve"], &["approve"]),
            (3, &["approve", "deliver"], &["approve", "deliver", "cancel"]),
            (4, &["cancel"], &["approve", "deliver", "cancel"]),
        ];
        for (id, transitions, rejected) in states {
            place(service, id).await;
            for transition in transitions {
                assert_eq!(change(service, id, transition).await.status(), 200, "{id} {transition}");
            }
            let state = async || [service.get("/v1/store/orders").await.body, service.get("/v1/pets").await.body];
            let before = state().await;
            service.clock.set(service.clock.now().plus(Duration::from_secs(1)));
            for transition in rejected {
                assert_eq!(change(service, id, transition).await.code(), "conflict", "{id} {transition}");
            }
            assert_eq!(state().await, before);
        }
        assert_eq!(
            change(service, 3, "cancel").await.json()["message"],
            "The order is `delivered`; only one that is `placed` or `approved` can become `cancelled`."
        );
        assert_eq!(
            change(service, 4, "deliver").await.json()["message"],
            "The order is `cancelled`; only one that is `approved` can become `delivered`."
        );
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
        for (id, code, why) in [
            (2, "conflict", "it was delivered"),
            (3, "conflict", "it was created as pending"),
            (4, "conflict", "it was created as sold"),
            (0, "not_found", "there is none"),
            (-1, "not_found", "there is none"),
            (5, "not_found", "there is none"),
            (i64::MIN, "not_found", "there is none"),
            (i64::MAX, "not_found", "there is none"),
        ] {
            assert_eq!(place(service, id).await.code(), code, "{id}: {why}");
        }
        assert_eq!(service.ids("/v1/store/orders").await, [1]);
        assert_eq!(status_of_pet(service, 3).await, "pending");
    });
}

#[test]
fn unknown_and_invalid_ids_are_not_found() {
    Service::with_pets_on_every_database(1, async |service| {
        place(service, 1).await;
        for id in ["abc", "1.0", "+1", "%201", "0x1", "%FF", "9223372036854775808", "2", "0", "-1"] {
            assert_eq!(service.post(&format!("/v1/store/orders/{id}/approve"), "").await.code(), "not_found", "{id}");
        }
        assert_eq!(service.post("/v1/store/orders/%31/approve", "").await.json()["status"], "approved");
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
            // The second response comes from the page cache.
            for _ in 0..2 {
                let page = service.get(&format!("/v1/store/orders{query}")).await;
                assert_eq!(page.ids(), expected, "{query}");
                assert_eq!(page.next_page(), next.map(|next| format!("/v1/store/orders?{next}")), "{query}");
            }
        }
    });
}

#[tokio::test]
async fn transition_body_is_optional_but_validated() {
    let service = Service::with_pets(7).await;
    for id in 1..=7 {
        place(&service, id).await;
    }
    let approve = |id: i64| service.request("POST", &format!("/v1/store/orders/{id}/approve")).key(&service.key);
    for (rejected, code) in [
        (approve(1).json("{"), "invalid_json"),
        (approve(1).json("[]"), "invalid_json"),
        (approve(1).json(" "), "invalid_json"),
        (approve(1).json(b"\"\xff\""), "invalid_json"),
        (approve(1).header("content-type", "text/plain").body("{}"), "unsupported_media_type"),
        (approve(1).body("{}"), "unsupported_media_type"),
        (approve(1).json(vec![b' '; LARGEST + 1]), "payload_too_large"),
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
        let answer = accepted.send().await;
        assert_eq!((answer.status(), &answer.json()["status"]), (200, &json!("approved")), "{}", answer.body);
    }
}

#[tokio::test]
async fn order_requires_integer_pet_id_and_ignores_the_rest() {
    let service = Service::with_pets(3).await;
    for (body, code) in [
        ("", "invalid_json"),
        ("[]", "invalid_json"),
        (r#"{"petId":1,"petId":1}"#, "invalid_json"),
        ("{}", "missing_field"),
        (r#"{"petid":1}"#, "missing_field"),
        (r#"{"petId":"1"}"#, "invalid_value"),
        (r#"{"petId":null}"#, "invalid_value"),
        (r#"{"petId":1.5}"#, "invalid_value"),
        (r#"{"petId":true}"#, "invalid_value"),
        (r#"{"petId":9223372036854775808}"#, "invalid_value"),
    ] {
        assert_eq!(service.post("/v1/store/orders", body).await.code(), code, "{body}");
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
