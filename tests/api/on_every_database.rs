//! The API does not let its database show: the same requests get the same answers, to the letter.

use petstore::store::postgres::DatabaseUrl;
use testkit::postgres;

use crate::service::{Service, Setup};

/// What each request of a story was answered, in order.
async fn tell(service: &Service) -> Vec<String> {
    let mut answers = Vec::new();
    let mut note = |what: &str, shown: String| answers.push(format!("{what}\n{shown}"));
    for body in [
        r#"{"name":"Rex","categoryId":1}"#,
        r#"{"name":" ß🦊\u2028\ufeff'; DROP TABLE pets; --","categoryId":-9223372036854775808,"status":"sold"}"#,
        r#"{"name":"\\\"\ud83e\udd8a","categoryId":9223372036854775807,"status":"pending"}"#,
        r#"{"name":"NUL \u0000","categoryId":1}"#,
        r#"{"name":"lone \ud83e","categoryId":1}"#,
        r#"{"name":"huge","categoryId":9223372036854775808}"#,
        r#"{"name":"Mimi","categoryId":3.0,"status":"available"}"#,
    ] {
        note(body, service.post("/v1/pets", body).await.shown());
    }
    let longest = format!(r#"{{"name":"{}","categoryId":0}}"#, "🦊".repeat(255));
    note("the longest name", service.post("/v1/pets", &longest).await.shown());
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
    // The animals 1 and 4 are available.
    for pet in [1, 1, 2, 3, 4, 99, i64::MIN] {
        note("place", service.post("/v1/store/orders", &format!(r#"{{"petId":{pet}}}"#)).await.shown());
    }
    for step in ["1/deliver", "1/approve", "1/approve", "1/deliver", "1/cancel", "2/cancel", "2/cancel", "3/approve"] {
        let taken = service.request("POST", &format!("/v1/store/orders/{step}")).key(&service.key).send().await;
        note(step, taken.shown());
    }
    for path in ["/v1/store/orders", "/v1/store/orders?limit=1", "/v1/store/orders?status=cancelled", "/v1/pets"] {
        note(path, service.get(path).await.shown());
    }
    for body in [r#"{"message":"a\tb\r\nc 🦊"}"#, r#"{"message":"NUL \u0000"}"#, r#"{"message":""}"#] {
        let answer = service.message(body).await;
        let shown = answer.shown();
        // An id that is new each time.
        let id = serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()["id"].as_str().map(str::to_owned);
        note(body, id.map_or(shown.clone(), |id| shown.replace(&id, "msg_…")));
    }
    answers
}

#[tokio::test]
async fn databases_give_identical_responses() {
    let sqlite = Service::start().await;
    let postgres = Some(postgres::database());
    let postgres = Service::start_with(Setup { postgres, ..Setup::default() }).await;

    let (there, here) = (tell(&sqlite).await, tell(&postgres).await);

    assert_eq!(there.len(), 43);
    assert!(there[0].contains("201 Created") && there[3].contains("400 Bad Request"), "{there:?}");
    for (there, here) in there.iter().zip(&here) {
        assert_eq!(there, here);
    }
    assert_eq!(there.len(), here.len());
}

#[tokio::test]
async fn acknowledged_write_is_in_every_later_list() {
    let postgres = Some(postgres::database());
    let service = Service::start_with(Setup { postgres, ..Setup::default() }).await;
    for id in 1..=100 {
        assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await.json()["id"], id);
        let listed = service.get(&format!("/v1/pets?after={}", id - 1)).await.json();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{id} was answered and is not listed");
    }
}

#[tokio::test]
async fn key_revoked_by_another_process_is_rejected() {
    let url = postgres::database();
    let service = Service::start_with(Setup { postgres: Some(url.clone()), ..Setup::default() }).await;
    let (id, key) = service.another_key(None).await;
    assert_eq!(service.request("GET", "/v1/pets").key(&key).send().await.status(), 200);

    let other = petstore::store::postgres::Postgres::open(&petstore::store::postgres::Options::new(
        DatabaseUrl::parse(&url).unwrap(),
    ))
    .await
    .unwrap();
    let other = petstore::store::Store::Postgres(Box::new(other));
    assert!(other.revoke_key(id, crate::service::NOW).await.unwrap());
    let revoked = std::time::Instant::now();
    while service.request("GET", "/v1/pets").key(&key).send().await.status() != 401 {
        assert!(revoked.elapsed().as_millis() < 1_000, "it goes on working");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
