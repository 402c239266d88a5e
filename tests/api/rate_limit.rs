//! Rate limits: per account, checked after the credential, and reported in every response.

use std::time::Duration;

use expect_test::expect;
use petstore::api::RateLimit;

use crate::service::{HELLO, LARGEST, NOW, REX, Service, Setup};

async fn limited(limit: &str) -> Service {
    let rate_limit = Some(RateLimit::parse(limit).unwrap());
    Service::start_with(Setup { rate_limit, ..Setup::default() }).await
}

#[tokio::test]
async fn account_above_its_limit_has_to_wait() {
    let service = limited("3/min").await;
    for left in [2, 1, 0] {
        let answer = service.get("/v1/pets").await;
        assert_eq!(answer.header("ratelimit"), Some(&*format!(r#""default";r={left};t=20"#)));
    }
    expect![[r#"
        429 Too Many Requests
        ratelimit: "default";r=0;t=20
        ratelimit-policy: "default";q=3;w=60
        retry-after: 20

        {"code":"rate_limited","message":"This account may send 3 requests per minute. Try again after the time in `Retry-After`.","status":429}
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());

    for (second, status, retry_after) in [(19, 429, Some("1")), (20, 200, None), (20, 429, Some("20"))] {
        service.clock.set(NOW.plus(Duration::from_secs(second)));
        let answer = service.get("/v1/pets").await;
        assert_eq!((answer.status(), answer.header("retry-after")), (status, retry_after), "after {second} s");
    }
}

#[tokio::test]
async fn limit_covers_all_keys_listeners_and_operations() {
    let service = limited("4/h").await;
    let (_, another_key) = service.another_key(None).await;
    let (_, others_key) = service.another_account("grace@example.com").await;
    assert_eq!(service.post("/v1/pets", REX).await.status(), 201);
    assert_eq!(service.call("HEAD", "/v1/pets").send().await.status(), 200);
    assert_eq!(service.request("GET", "/v1/pets?limit=0").key(&another_key).send().await.status(), 400);
    assert_eq!(service.message(HELLO).await.status(), 202);

    for request in service.operations() {
        assert_eq!(request.key(&another_key).send().await.code(), "rate_limited");
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 1, "rejected requests have no effect");
    let other = service.request("GET", "/v1/pets").key(&others_key).send().await;
    assert_eq!(other.header("ratelimit"), Some(r#""default";r=3;t=900"#), "other accounts have their own limit");
}

#[tokio::test]
async fn limit_is_checked_after_the_credential() {
    let service = limited("1/h").await;
    let wrong = || {
        [
            service.request("GET", "/v1/pets?limit=0"),
            service.request("POST", "/v1/pets").header("content-type", "text/plain").body("x"),
            service.request("POST", "/v1/pets").json("x".repeat(LARGEST + 1)),
            service.message_request().json("{}"),
        ]
    };
    for request in wrong() {
        let answer = request.key("pet_test_x").send().await;
        assert_eq!((answer.code().as_str(), answer.header("ratelimit")), ("invalid_api_key", None));
    }
    assert_eq!(service.call("PUT", "/v1/pets").send().await.status(), 405);
    assert_eq!(service.get("/v1/nothing").await.status(), 404);
    assert_eq!(service.get("/v1/pets").await.status(), 200, "none of these requests counts");
    for request in wrong() {
        assert_eq!(request.key(&service.key).send().await.code(), "rate_limited");
    }
}
