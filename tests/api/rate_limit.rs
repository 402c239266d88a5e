//! Rate limits: per account, after the credential and before all else, and said on every answer.

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use petstore::config::RateLimit;
use testkit::Response;
use tokio::task::JoinSet;

use crate::service::{NOW, Service, Setup};

async fn limited(limit: &str) -> Service {
    let rate_limit = Some(RateLimit::parse(limit).unwrap());
    Service::start_with(Setup { rate_limit, ..Setup::default() }).await
}

#[tokio::test]
async fn no_limit_means_no_rate_limit_headers() {
    let service = Service::start().await;
    let answer = service.get("/v1/pets").await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
}

#[tokio::test]
async fn account_above_its_limit_has_to_wait() {
    let service = limited("3/min").await;
    let mut left = Vec::new();
    for _ in 0..3 {
        left.push(service.get("/v1/pets").await.header("ratelimit").unwrap().to_owned());
    }
    assert_eq!(left, [r#""default";r=2;t=20"#, r#""default";r=1;t=20"#, r#""default";r=0;t=20"#]);
    expect![[r#"
        429 Too Many Requests
        content-type: application/json
        ratelimit: "default";r=0;t=20
        ratelimit-policy: "default";q=3;w=60
        retry-after: 20

        {"code":"rate_limited","message":"This account may send 3 requests per minute; `Retry-After` says when to go on.","status":429}
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());

    service.clock.set(NOW.plus(Duration::from_secs(19)));
    let refused = service.get("/v1/pets").await;
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("1")), "a refusal costs nothing");
    service.clock.set(NOW.plus(Duration::from_secs(20)));
    assert_eq!(service.get("/v1/pets").await.status(), 200);
    assert_eq!(service.get("/v1/pets").await.status(), 429);
}

#[tokio::test]
async fn limit_covers_all_keys_listeners_and_operations() {
    let service = limited("10/h").await;
    let (_, another_key) = service.another_key(None).await;
    let (_, stranger) = service.another_account("grace@example.com").await;
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.status(), 201);
    assert_eq!(service.get("/v1/pets/1").await.status(), 200);
    assert_eq!(service.request("HEAD", "/v1/pets").key(&service.key).send().await.status(), 200);
    assert_eq!(service.request("GET", "/v1/pets").key(&another_key).send().await.status(), 200);
    for _ in 0..6 {
        assert_eq!(service.message(r#"{"message":"Hello"}"#).await.status(), 202);
    }

    for operation in service.operations() {
        assert_eq!(operation.key(&another_key).send().await.code(), "rate_limited");
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 1, "what was refused was not done");
    for operation in service.operations() {
        assert!(operation.key(&stranger).send().await.head.status.is_success(), "others have their own");
    }
}

#[tokio::test]
async fn limit_is_checked_after_the_credential() {
    let service = limited("1/h").await;
    let large = "x".repeat(64 * 1024 + 1);
    let wrong = |service: &Service| {
        [
            service.request("GET", "/v1/pets?limit=0"),
            service.request("POST", "/v1/pets").json("{"),
            service.request("POST", "/v1/pets").header("content-type", "text/plain").body("x"),
            service.request("POST", "/v1/pets").json(large.clone()),
            service.message_request().json("{}"),
        ]
    };
    for request in wrong(&service) {
        assert_eq!(request.send().await.code(), "missing_api_key");
    }
    for request in wrong(&service) {
        let answer = request.key("pet_test_x").send().await;
        assert_eq!((answer.code().as_str(), answer.header("ratelimit")), ("invalid_api_key", None));
    }
    assert_eq!(service.request("PUT", "/v1/pets").key(&service.key).send().await.status(), 405);
    assert_eq!(service.get("/v1/nothing").await.status(), 404);
    assert_eq!(service.get("/v1/pets").await.status(), 200, "none of these has counted");
    for request in wrong(&service) {
        assert_eq!(request.key(&service.key).send().await.code(), "rate_limited");
    }
}

#[tokio::test]
async fn responses_report_the_remaining_quota() {
    let (rate_limit, busy_timeout) = (RateLimit::parse("100/min").ok(), Duration::from_millis(100));
    let service = Service::start_with(Setup { rate_limit, busy_timeout, ..Setup::default() }).await;
    let asked = [
        service.request("GET", "/v1/pets"),
        service.request("HEAD", "/v1/pets"),
        service.request("GET", "/v1/pets/1"),
        service.request("GET", "/v1/pets?limit=0"),
        service.request("POST", "/v1/pets").json(r#"{"name":"Rex","categoryId":3}"#),
        service.request("POST", "/v1/pets").json("{"),
        service.request("POST", "/v1/pets").header("content-type", "text/plain").body("x"),
        service.request("POST", "/v1/pets").json("x".repeat(64 * 1024 + 1)),
        service.message_request().json(r#"{"message":"Hello"}"#),
    ];
    let says = |answer: &Response, left: u64| {
        let status = answer.status();
        assert_eq!(answer.header("ratelimit-policy"), Some(r#""default";q=100;w=60"#), "{status}");
        assert_eq!(answer.header("ratelimit"), Some(&*format!(r#""default";r={left};t=1"#)), "{status}");
    };
    let mut statuses = Vec::new();
    for (left, request) in (0..100).rev().zip(asked) {
        let answer = request.key(&service.key).send().await;
        says(&answer, left);
        statuses.push(answer.status());
    }
    assert_eq!(statuses, [200, 200, 404, 400, 201, 400, 415, 413, 202]);
    let database = service.database();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answer = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    assert_eq!(answer.status(), 503);
    says(&answer, 90);
}

#[tokio::test]
async fn rate_limit_headers_are_readable_across_origins() {
    let (rate_limit, origin) = (RateLimit::parse("1/h").ok(), "https://shop.example");
    let setup = Setup { rate_limit, cors_origins: vec![origin.into()], ..Setup::default() };
    let service = Service::start_with(setup).await;
    let ask = async || service.request("GET", "/v1/pets").key(&service.key).header("origin", origin).send().await;
    let (first, second) = (ask().await, ask().await);
    assert_eq!((first.status(), second.status()), (200, 429));
    for answer in [first, second] {
        let readable = answer.list("access-control-expose-headers");
        for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
            assert!(readable.iter().any(|one| one == name), "{readable:?}");
        }
        assert!(answer.header("ratelimit").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_do_not_exceed_the_limit() {
    let service = Arc::new(limited("100/h").await);
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let service = Arc::clone(&service);
        asking.spawn(async move {
            let mut allowed = 0;
            for _ in 0..25 {
                allowed += u32::from(service.get("/v1/pets").await.status() == 200);
            }
            allowed
        });
    }
    assert_eq!(asking.join_all().await.iter().sum::<u32>(), 100);
}
