//! The store area: `listOrders`, `placeOrder`, `approveOrder`, `deliverOrder`, `cancelOrder`.

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use testkit::{Response, postgres};

use crate::service::{NOW, Service, Setup};

#[tokio::test]
async fn order_is_placed_approved_and_delivered() {
    let service = with_animals(1).await;
    expect![[r#"
        201 Created
        content-type: application/json

        {"id":1,"petId":1,"status":"placed","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:30:00.123Z"}
    "#]]
    .assert_eq(&place(&service, 1).await.shown());
    assert_eq!(status_of_pet(&service, 1).await, "pending");

    service.clock.set(NOW.plus(Duration::from_secs(60)));
    expect![[r#"
        200 OK
        content-type: application/json

        {"id":1,"petId":1,"status":"approved","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:31:00.123Z"}
    "#]]
    .assert_eq(&step(&service, 1, "approve").await.shown());
    assert_eq!(status_of_pet(&service, 1).await, "pending");

    service.clock.set(NOW.plus(Duration::from_secs(120)));
    expect![[r#"
        200 OK
        content-type: application/json

        {"id":1,"petId":1,"status":"delivered","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:32:00.123Z"}
    "#]]
    .assert_eq(&step(&service, 1, "deliver").await.shown());
    assert_eq!(status_of_pet(&service, 1).await, "sold");

    expect![[r#"
        200 OK
        content-type: application/json

        [{"id":1,"petId":1,"status":"delivered","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:32:00.123Z"}]
    "#]]
    .assert_eq(&service.get("/v1/store/orders").await.shown());
}

#[tokio::test]
async fn animal_of_cancelled_order_can_be_ordered_again() {
    let service = with_animals(1).await;
    for (id, first) in (1..).zip([None, Some("approve"), None]) {
        assert_eq!(place(&service, 1).await.json()["id"], id);
        assert_eq!(place(&service, 1).await.code(), "conflict", "one at a time");
        if let Some(first) = first {
            assert_eq!(step(&service, id, first).await.status(), 200);
        }
        assert_eq!(step(&service, id, "cancel").await.json()["status"], "cancelled");
        assert_eq!(status_of_pet(&service, 1).await, "available");
    }
    assert_eq!(listed(&service.get("/v1/store/orders").await), [1, 2, 3]);
}

#[tokio::test]
async fn other_transitions_are_409_without_effect() {
    let service = with_animals(4).await;
    let states: [(i64, &[&str], &[&str]); 4] = [
        (1, &[], &["deliver"]),
        (2, &["approve"], &["approve"]),
        (3, &["approve", "deliver"], &["approve", "deliver", "cancel"]),
        (4, &["cancel"], &["approve", "deliver", "cancel"]),
    ];
    for (id, steps, refused) in states {
        place(&service, id).await;
        for taken in steps {
            assert_eq!(step(&service, id, taken).await.status(), 200, "{id} {taken}");
        }
        let before = (service.get(&format!("/v1/store/orders?after={}", id - 1)).await.body, pets(&service).await);
        service.clock.set(service.clock.now().plus(Duration::from_secs(1)));
        for refused in refused {
            let answer = step(&service, id, refused).await;
            assert_eq!((answer.status(), answer.code().as_str()), (409, "conflict"), "{id} {refused}");
        }
        let after = (service.get(&format!("/v1/store/orders?after={}", id - 1)).await.body, pets(&service).await);
        assert_eq!(before, after);
    }
    let message = |answer: Response| answer.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message(step(&service, 3, "cancel").await),
        "The order is `delivered`; only one that is `placed` or `approved` can become `cancelled`."
    );
    assert_eq!(
        message(step(&service, 4, "deliver").await),
        "The order is `cancelled`; only one that is `approved` can become `delivered`."
    );
}

#[tokio::test]
async fn only_available_animals_can_be_ordered() {
    let service = with_animals(2).await;
    for status in ["pending", "sold"] {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":1,"status":"{status}"}}"#)).await;
    }
    place(&service, 2).await;
    step(&service, 1, "approve").await;
    assert_eq!(step(&service, 1, "deliver").await.json()["status"], "delivered");
    for (id, why) in [(2, "it was delivered"), (3, "it was added as pending"), (4, "it was added as sold")] {
        let answer = place(&service, id).await;
        assert_eq!((answer.status(), answer.code().as_str()), (409, "conflict"), "{why}");
    }
    for nothing in [0, -1, 5, i64::MIN, i64::MAX] {
        let answer = place(&service, nothing).await;
        assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{nothing}");
    }
    assert_eq!(listed(&service.get("/v1/store/orders").await), [1]);
    assert_eq!(place(&service, 1).await.json()["id"], 2, "what was refused has taken no id");
}

#[tokio::test]
async fn accounts_see_and_change_only_their_own_orders() {
    let service = with_animals(3).await;
    let (_, grace) = service.another_account("grace@example.com").await;
    let graces = |method: &str, path: &str| service.request(method, path).key(&grace);
    place(&service, 1).await;
    assert_eq!(graces("POST", "/v1/store/orders").json(r#"{"petId":2}"#).send().await.json()["id"], 2);
    place(&service, 3).await;

    // The pages are kept by now, each for its account.
    for _ in 0..2 {
        assert_eq!(listed(&service.get("/v1/store/orders").await), [1, 3]);
        assert_eq!(listed(&graces("GET", "/v1/store/orders").send().await), [2]);
        assert_eq!(listed(&graces("GET", "/v1/store/orders?status=placed").send().await), [2]);
    }
    for taken in ["approve", "deliver", "cancel"] {
        let answer = graces("POST", &format!("/v1/store/orders/1/{taken}")).send().await;
        let unknown = graces("POST", &format!("/v1/store/orders/99/{taken}")).send().await;
        assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{taken}");
        assert_eq!(answer.body, unknown.body, "another's order is told from none by nothing");
    }
    let taken = graces("POST", "/v1/store/orders").json(r#"{"petId":1}"#).send().await;
    assert_eq!(taken.code(), "conflict", "the animal is taken, whoever has it");
    assert_eq!(service.get("/v1/store/orders?limit=1").await.json()[0]["status"], "placed");
}

#[tokio::test]
async fn id_outside_int64_is_not_found() {
    let service = with_animals(1).await;
    place(&service, 1).await;
    for id in ["abc", "1.0", "+1", "%201", "0x1", "%FF", "9223372036854775808", "2", "0", "-1"] {
        let answer = service.request("POST", &format!("/v1/store/orders/{id}/approve")).key(&service.key).send().await;
        assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{id}");
    }
    let encoded = service.request("POST", "/v1/store/orders/%31/approve").key(&service.key).send().await;
    assert_eq!(encoded.json()["status"], "approved");
}

#[tokio::test]
async fn order_lists_are_paginated_like_animals() {
    let service = with_animals(25).await;
    for id in 1..=25 {
        place(&service, id).await;
        if id % 3 == 0 {
            step(&service, id, "cancel").await;
        }
    }
    let link = |query: &str| Some(format!(r#"<http://{}/v1/store/orders?{query}>; rel="next""#, service.store_address));
    for (query, expected, next) in [
        ("", (1..=20).collect::<Vec<_>>(), link("limit=20&after=20")),
        ("?after=20", (21..=25).collect(), None),
        ("?limit=25", (1..=25).collect(), None),
        ("?limit=2&after=-9223372036854775808", vec![1, 2], link("limit=2&after=2")),
        ("?status=cancelled&limit=3", vec![3, 6, 9], link("limit=3&status=cancelled&after=9")),
        ("?status=cancelled&after=18", vec![21, 24], None),
        ("?status=placed&after=22", vec![23, 25], None),
        ("?status=approved", vec![], None),
        ("?after=9223372036854775807", vec![], None),
    ] {
        // The second time out of what is kept.
        for _ in 0..2 {
            let page = service.get(&format!("/v1/store/orders{query}")).await;
            assert_eq!(
                (listed(&page), page.header("link").map(str::to_owned)),
                (expected.clone(), next.clone()),
                "{query}"
            );
        }
    }
    let head = service.request("HEAD", "/v1/store/orders?limit=2").key(&service.key).send().await;
    assert_eq!((head.status(), head.body.as_str(), head.header("link").is_some()), (200, "", true));
    for (query, code) in [
        ("limit=0", "invalid_value"),
        ("limit=101", "invalid_value"),
        ("status=sold", "invalid_value"),
        ("status=Placed", "invalid_value"),
        ("after=x", "invalid_value"),
        ("petId=1", "unknown_parameter"),
        ("limit=1&limit=1", "unknown_parameter"),
    ] {
        assert_eq!(service.get(&format!("/v1/store/orders?{query}")).await.code(), code, "{query}");
    }
}

#[tokio::test]
async fn lists_show_the_new_status_immediately() {
    let service = with_animals(1).await;
    let shown = async || {
        let mut shown = Vec::new();
        for (list, statuses) in [
            ("/v1/pets", &["available", "pending", "sold"][..]),
            ("/v1/store/orders", &["placed", "approved", "delivered", "cancelled"]),
        ] {
            for status in statuses {
                // The second one is kept from the first.
                let (first, second) = (
                    service.get(&format!("{list}?status={status}")).await.json(),
                    service.get(&format!("{list}?status={status}")).await.json(),
                );
                assert_eq!(first, second);
                if !first.as_array().unwrap().is_empty() {
                    shown.push((*status).to_owned());
                }
            }
        }
        shown.join(" ")
    };
    assert_eq!(shown().await, "available");
    place(&service, 1).await;
    assert_eq!(shown().await, "pending placed");
    step(&service, 1, "approve").await;
    assert_eq!(shown().await, "pending approved");
    step(&service, 1, "cancel").await;
    assert_eq!(shown().await, "available cancelled");
    place(&service, 1).await;
    step(&service, 2, "approve").await;
    step(&service, 2, "deliver").await;
    assert_eq!(shown().await, "sold delivered cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_200_concurrent_orders_gets_the_animal() {
    let limits = || Setup::default().limits;
    for postgres in [None, Some(postgres::database())] {
        let service = Arc::new(Service::start_with(Setup { postgres, limits: limits(), ..Setup::default() }).await);
        service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await;
        let (_, grace) = service.another_account("grace@example.com").await;
        let clients: Vec<_> = (0..200)
            .map(|client| {
                let service = Arc::clone(&service);
                let key = if client % 2 == 0 { service.key.clone() } else { grace.clone() };
                let order = async move {
                    service.request("POST", "/v1/store/orders").key(&key).json(r#"{"petId":1}"#).send().await
                };
                tokio::spawn(order)
            })
            .collect();
        let mut statuses = Vec::new();
        for client in clients {
            let answer = client.await.unwrap();
            if answer.status() != 201 {
                assert_eq!(answer.code(), "conflict");
            }
            statuses.push(answer.status());
        }
        let count = |status: u16| statuses.iter().filter(|&&other| other == status).count();
        assert_eq!((count(201), count(409)), (1, 199));
    }
}

#[tokio::test]
async fn transition_body_is_optional_but_validated() {
    let service = with_animals(7).await;
    for id in 1..=7 {
        place(&service, id).await;
    }
    let request = |id: i64| service.request("POST", &format!("/v1/store/orders/{id}/approve")).key(&service.key);
    for (refused, code) in [
        (request(1).json("{"), "invalid_json"),
        (request(1).json("[]"), "invalid_json"),
        (request(1).json(" "), "invalid_json"),
        (request(1).json(b"\"\xff\"".to_vec()), "invalid_json"),
        (request(1).header("content-type", "text/plain").body("{}"), "unsupported_media_type"),
        (request(1).body("{}"), "unsupported_media_type"),
        (request(1).json(vec![b' '; 64 * 1024 + 1]), "payload_too_large"),
    ] {
        assert_eq!(refused.send().await.code(), code);
    }
    for (id, taken) in (1..).zip([
        request(1),
        request(2).header("content-length", "0"),
        request(3).header("content-type", "application/json"),
        request(4).header("content-type", "application/x-www-form-urlencoded"),
        request(5).json("{}"),
        request(6).json(r#"{"status":"delivered","id":1}"#),
        request(7).header("accept", "text/plain"),
    ]) {
        let answer = taken.send().await;
        assert_eq!((answer.status(), answer.json()["status"].as_str()), (200, Some("approved")), "{id}");
    }
    let unknown = service.request("POST", "/v1/store/orders/1/deliver?x=1").key(&service.key).send().await;
    assert_eq!(unknown.code(), "unknown_parameter");
}

#[tokio::test]
async fn order_requires_integer_pet_id_and_ignores_the_rest() {
    let service = with_animals(3).await;
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
    for (pet, body) in
        (1..).zip([r#"{"petId":1.0}"#, r#"{"petId":2,"status":"delivered","id":77,"quantity":3}"#, r#"{"petId":3e0}"#])
    {
        let order = service.post("/v1/store/orders", body).await.json();
        assert_eq!((&order["id"], &order["petId"], &order["status"]), (&json!(pet), &json!(pet), &json!("placed")));
    }
}

#[tokio::test]
async fn orders_follow_the_order_of_checks() {
    let service = with_animals(1).await;
    let request = |method: &str, path: &str| service.request(method, path);
    for path in [
        "/v1/store",
        "/v1/store/orders/",
        "/v1/store/orders/1",
        "/v1/store/orders/1/return",
        "/v1/store/orders/1/approve/",
    ] {
        assert_eq!(request("POST", path).send().await.code(), "not_found", "{path}");
    }
    let wrong = request("DELETE", "/v1/store/orders?x=1").send().await;
    assert_eq!((wrong.code().as_str(), wrong.header("allow")), ("method_not_allowed", Some("GET,HEAD,POST")));
    let wrong = request("GET", "/v1/store/orders/x/cancel?x=1").send().await;
    assert_eq!((wrong.code().as_str(), wrong.header("allow")), ("method_not_allowed", Some("POST")));
    // Values come before the operation: the order is not looked for.
    assert_eq!(step(&service, 99, "approve?x=1").await.code(), "unknown_parameter");
    let bad = request("POST", "/v1/store/orders/99/approve").key(&service.key).json("{").send().await;
    assert_eq!(bad.code(), "invalid_json");
}

#[tokio::test]
async fn order_operations_are_marked_provisional() {
    let service = Service::start().await;
    let document = service.request("GET", "/openapi.json").send().await.json();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values().filter(|value| value["operationId"].is_string()) {
            let provisional = operation["x-provisional"] == json!(true);
            assert_eq!(provisional, path.starts_with("/store/"), "{path}");
            operations += usize::from(provisional);
        }
    }
    assert_eq!(operations, 5);
}

/// A service with animals that are available, whose ids count from 1.
async fn with_animals(count: i64) -> Service {
    let service = Service::start().await;
    for _ in 0..count {
        service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await;
    }
    service
}

async fn place(service: &Service, pet: i64) -> Response {
    service.post("/v1/store/orders", &format!(r#"{{"petId":{pet}}}"#)).await
}

async fn step(service: &Service, order: i64, step: &str) -> Response {
    service.request("POST", &format!("/v1/store/orders/{order}/{step}")).key(&service.key).send().await
}

async fn pets(service: &Service) -> Value {
    service.get("/v1/pets?limit=100").await.json()
}

async fn status_of_pet(service: &Service, id: i64) -> String {
    service.get(&format!("/v1/pets/{id}")).await.json()["status"].as_str().unwrap().to_owned()
}

fn listed(page: &Response) -> Vec<i64> {
    assert_eq!(page.status(), 200, "{}", page.body);
    page.json().as_array().unwrap().iter().map(|order| order["id"].as_i64().unwrap()).collect()
}
