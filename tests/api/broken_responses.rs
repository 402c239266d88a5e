//! Simulated resets, bodies that break their schema, headers `Retry-After`, and failures of the first requests.

use std::io::ErrorKind;

use petstore::api::Operation;
use testkit::soon;
use tokio::io::AsyncReadExt;

use crate::failing_keys::{failing_key, failures};
use crate::service::{NOW, OPERATOR, REX, Service};
use crate::simulation::{applied, outcome, preferring};
use crate::transport::Transport;

#[tokio::test]
async fn first_requests_of_each_key_fail_until_a_reset() {
    let service = Service::start().await;
    let (_, another) = failing_key(&service, "code=503, first=2").await;
    let preferences = Some("code=503, first=2");
    for _ in 0..2 {
        assert_eq!(failures(&service, &service.key, preferences, 4).await, [true, true, false, false]);
        assert_eq!(failures(&service, &service.key, preferences, 2).await, [false, false]);
        assert_eq!(failures(&service, &another, None, 3).await, [true, true, false]);
        service.store.reset(Box::new(std::iter::empty()), OPERATOR, || false).await.unwrap();
    }
    // `every` has a counter of its own, which a reset does not restart.
    assert_eq!(failures(&service, &service.key, Some("code=503, every=2"), 1).await, [false]);
    assert_eq!(failures(&service, &service.key, preferences, 1).await, [true]);
    assert_eq!(failures(&service, &service.key, Some("code=503, every=2"), 1).await, [true]);
}

#[tokio::test]
async fn first_requests_to_an_operation_are_counted_alone() {
    let service = Service::start().await;
    let (_, key) = failing_key(&service, "drop=response, first=1, operation=createPet").await;
    assert_eq!(service.request("GET", "/v1/pets").key(&key).send().await.status(), 200);
    let create = || service.request("POST", "/v1/pets").key(&key).json(REX);
    assert_eq!(soon(testkit::raw(service.store_address, &create().bytes())).await, "");
    assert_eq!(create().send().await.status(), 201);
}

#[tokio::test]
async fn reset_connection_ends_with_a_tcp_reset() {
    for transport in Transport::each(|_| {}).await {
        let mut stream = transport.create("prefer: drop=reset\r\n").await;
        let mut bytes = Vec::new();
        let error = soon(stream.read_to_end(&mut bytes)).await.unwrap_err();
        assert_eq!((error.kind(), bytes.len()), (ErrorKind::ConnectionReset, 0));
        assert_eq!(transport.service.store.count_pets().await.unwrap(), 1, "the operation is executed");
    }
}

#[tokio::test]
async fn retry_after_is_as_preferred() {
    let service = Service::start().await;
    let retry_after = async |preferences: &str| {
        let answer = preferring(&service, Operation::ListPets, preferences).send().await;
        assert_eq!(applied(&answer), preferences, "{}", answer.shown());
        answer.header("retry-after").map(str::to_owned)
    };
    for (code, value) in [(503, "0"), (503, "30"), (503, "3600"), (429, "7")] {
        assert_eq!(retry_after(&format!("code={code}, retry-after={value}")).await.as_deref(), Some(value));
    }
    // A second after now, rounded up.
    assert_eq!(NOW.to_string(), "2026-11-20T09:30:00.123Z");
    let date = retry_after("code=503, retry-after=date").await;
    assert_eq!(date.as_deref(), Some("Fri, 20 Nov 2026 09:30:02 GMT"));
    let without = preferring(&service, Operation::ListPets, "code=400, retry-after=30").send().await;
    assert_eq!((applied(&without), without.header("retry-after")), ("code=400", None));
}

#[tokio::test]
async fn success_has_a_body_that_breaks_its_schema() {
    let service = Service::with_pets(1).await;
    let html = "<!doctype html><title>Sign in</title><h1>Sign in to this network</h1>\n";
    for (preferences, content_type, body) in [
        ("body=cut", "application/json", r#"{"id":2,"name":"Rex","catego"#),
        ("body=html", "text/html", html),
        (
            "body=unknown-field",
            "application/json",
            r#"{"unknownField":true,"id":4,"name":"Rex","categoryId":3,"status":"available"}"#,
        ),
        ("body=unknown-value", "application/json", r#"{"id":5,"name":"Rex","categoryId":3,"status":"unavailable"}"#),
    ] {
        let answer = preferring(&service, Operation::CreatePet, preferences).json(REX).send().await;
        assert_eq!(outcome(&answer), (201, preferences), "{}", answer.shown());
        assert_eq!((answer.header("content-type"), answer.body.as_str()), (Some(content_type), body));
        assert_eq!(answer.header("content-length"), Some(&*body.len().to_string()));
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 5, "the operation is executed");
    let list = preferring(&service, Operation::ListPets, "body=unknown-value").send().await;
    assert_eq!(list.body.matches("\"status\":\"unavailable\"").count(), 5, "{}", list.body);
}

#[tokio::test]
async fn response_without_a_part_to_break_is_unchanged() {
    let service = Service::start().await;
    for (operation, preferences) in
        [(Operation::ListPets, "body=unknown-field"), (Operation::GetPet, "body=cut"), (Operation::GetPet, "body=html")]
    {
        let plain = preferring(&service, operation, "").send().await;
        let answer = preferring(&service, operation, preferences).send().await;
        assert_eq!(outcome(&answer), (plain.status(), ""), "{preferences}");
        assert_eq!(answer.body, plain.body);
    }
    let keyed = |preferences| {
        preferring(&service, Operation::CreatePet, preferences).header("idempotency-key", "once").json(REX)
    };
    assert_eq!(keyed("body=cut").send().await.body.len(), 28);
    let replayed = keyed("").send().await;
    assert_eq!(replayed.json()["name"], "Rex", "the stored response is whole: {}", replayed.shown());
}
