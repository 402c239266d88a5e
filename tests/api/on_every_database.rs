//! Clients cannot tell the databases apart: the same requests get the same responses.

use crate::service::Service;

#[tokio::test]
async fn databases_give_identical_responses() {
    let (sqlite, postgresql) = (Service::start().await, Service::start_on_postgresql().await);

    let (expected, found) = (responses(&sqlite).await, responses(&postgresql).await);

    assert!(expected[0].contains("201 Created") && expected[3].contains("400 Bad Request"), "{expected:?}");
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.len(), found.len());
}

/// The responses to a sequence of requests.
async fn responses(service: &Service) -> Vec<String> {
    let mut responses = Vec::new();
    let mut note = |request: &str, shown: String| responses.push(format!("{request}\n{shown}"));
    for body in [
        r#"{"name":"Rex","categoryId":1}"#,
        r#"{"name":" ß🦊\u2028\ufeff'; DROP TABLE pets; --","categoryId":-9223372036854775808,"status":"sold"}"#,
        r#"{"name":"\\\"\ud83e\udd8a","categoryId":9223372036854775807,"status":"pending"}"#,
        r#"{"name":"NUL \u0000","categoryId":1}"#,
        r#"{"name":"lone \ud83e","categoryId":1}"#,
        r#"{"name":"huge","categoryId":9223372036854775808}"#,
        r#"{"name":"Mimi","categoryId":3.0,"status":"available"}"#,
        &format!(r#"{{"name":"{}","categoryId":0}}"#, "🦊".repeat(255)),
    ] {
        note(body, service.post("/v1/pets", body).await.shown());
    }
    for path in [
        "/v1/pets",
        "/v1/pets?limit=2",
        "/v1/pets?limit=2&after=2",
        "/v1/pets?limit=1&status=available",
        "/v1/pets?status=sold&after=-9223372036854775808",
        "/v1/pets?after=9223372036854775807",
        "/v1/pets?limit=0",
        "/v1/pets/2",
        "/v1/pets/0",
        "/v1/pets/-9223372036854775808",
        "/v1/pets/9223372036854775807",
        "/v1/pets/9223372036854775808",
        "/readyz",
    ] {
        note(path, service.get(path).await.shown());
    }
    // Animals 1 and 4 are available.
    for pet in [1, 1, 2, 3, 4, 99, i64::MIN] {
        note("place", service.post("/v1/store/orders", &format!(r#"{{"petId":{pet}}}"#)).await.shown());
    }
    for step in ["1/deliver", "1/approve", "1/approve", "1/deliver", "1/cancel", "2/cancel", "2/cancel", "3/approve"] {
        note(step, service.post(&format!("/v1/store/orders/{step}"), "").await.shown());
    }
    for path in ["/v1/store/orders", "/v1/store/orders?limit=1", "/v1/store/orders?status=cancelled", "/v1/pets"] {
        note(path, service.get(path).await.shown());
    }
    for body in [r#"{"message":"a\tb\r\nc 🦊"}"#, r#"{"message":"NUL \u0000"}"#, r#"{"message":""}"#] {
        let answer = service.message(body).await;
        // Ids differ from run to run.
        let id = answer.json()["id"].as_str().unwrap_or("no id").to_owned();
        note(body, answer.shown().replace(&id, "msg_…"));
    }
    responses
}
