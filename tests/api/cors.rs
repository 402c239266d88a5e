//! Cross-origin requests: which origins a browser lets call the API.

use expect_test::expect;
use petstore::api::{BaseUrl, RateLimit};
use testkit::{Request, Response};

use crate::service::{HELLO, LARGEST, Service, Setup};

const SHOP: &str = "https://shop.example.com";
const OTHER: &str = "http://localhost:3000";
const EVIL: &str = "https://evil.example";

#[tokio::test]
async fn no_origin_is_allowed_by_default() {
    let service = Service::start().await;
    let own = format!("http://{}", service.store_address);
    for origin in [SHOP, "null", &own] {
        let answer = service.call("GET", "/v1/pets").header("origin", origin).send().await;
        assert_eq!((answer.status(), cors_headers(&answer)), (200, vec![]), "{origin}");
        let preflight = preflight(service.request("OPTIONS", "/v1/pets"), origin, "POST").await;
        assert_eq!((preflight.code().as_str(), cors_headers(&preflight)), ("method_not_allowed", vec![]), "{origin}");
    }
}

#[tokio::test]
async fn only_configured_origins_are_allowed() {
    let service = with_origins().await;
    let others = ["https://shop.example.com.evil.example", "http://shop.example.com", "https://shop.example.com:8443"];
    let others = [&others[..], &[EVIL, "https://example.com", "http://localhost", "null"]].concat();
    for origin in [SHOP, OTHER].into_iter().chain(others) {
        for request in service.operations() {
            let answer = request.key(&service.key).header("origin", origin).send().await;
            assert_eq!(allowed(&answer), [SHOP, OTHER].contains(&origin).then_some(origin), "{origin}");
            assert!(answer.list("vary").contains(&"origin".to_owned()), "{origin}");
            assert_eq!(answer.header("access-control-allow-credentials"), None, "{origin}");
        }
    }
    let without_origin = service.get("/v1/pets").await;
    assert_eq!(allowed(&without_origin), None);
    assert!(without_origin.list("vary").contains(&"origin".to_owned()), "a cache must not give it to a page");
    for (request, status) in [
        (service.request("GET", "/v1/pets"), 401),
        (service.call("GET", "/v1/pets?limit=0"), 400),
        (service.request("GET", "/v1/nothing"), 404),
        (service.request("DELETE", "/v1/pets"), 405),
        (service.call("POST", "/v1/pets").json(" ".repeat(LARGEST + 1)), 413),
    ] {
        let error = request.header("origin", SHOP).send().await;
        assert_eq!((error.status(), allowed(&error)), (status, Some(SHOP)));
    }
}

#[tokio::test]
async fn documented_headers_are_exposed_across_origins() {
    let (rate_limit, cors_origins) = (RateLimit::parse("1/h").ok(), vec![SHOP.to_owned()]);
    let service = Service::start_with(Setup { rate_limit, cors_origins, ..Setup::default() }).await;
    for status in [200, 429] {
        let answer = service.call("GET", "/v1/pets").header("origin", SHOP).send().await;
        assert_eq!((answer.status(), answer.header("ratelimit").is_some()), (status, true));
        let exposed = "allow,link,location,retry-after,www-authenticate,x-request-id,deprecation,idempotent-replayed,\
                       preference-applied,sunset,ratelimit,ratelimit-policy";
        assert_eq!(answer.header("access-control-expose-headers"), Some(exposed));
    }
}

#[tokio::test]
async fn preflight_precedes_every_other_check() {
    let service = with_origins().await;
    for (address, path, method) in [
        (service.store_address, "/v1/pets?limit=0", "POST"),
        (service.store_address, "/v1/nothing", "GET"),
        (service.messages_address, "/v1/messages", "POST"),
    ] {
        let answer = preflight(Request::new(address, "OPTIONS", path), SHOP, method).await;
        expect![[r#"
            200 OK
            access-control-allow-methods: GET,HEAD,POST
            access-control-allow-headers: authorization,content-type,idempotency-key,prefer,x-request-id,user-agent,traceparent,tracestate,baggage,sentry-trace
            access-control-max-age: 600
            access-control-allow-origin: https://shop.example.com
            access-control-expose-headers: allow,link,location,retry-after,www-authenticate,x-request-id,deprecation,idempotent-replayed,preference-applied,sunset,ratelimit,ratelimit-policy
            vary: origin


        "#]]
        .assert_eq(&answer.shown());
        assert!(answer.header("x-request-id").is_some());
        let evil = preflight(Request::new(address, "OPTIONS", path), EVIL, method).await;
        assert_eq!(allowed(&evil), None, "{path}");
    }
}

#[tokio::test]
async fn messages_listener_allows_store_and_configured_origins() {
    let base_url = BaseUrl::parse("https://API.example.com:443/petstore/v1").ok();
    let service =
        Service::start_with(Setup { base_url, cors_origins: vec![SHOP.to_owned()], ..Setup::default() }).await;
    let (store, messages) =
        (format!("http://{}", service.store_address), format!("http://{}", service.messages_address));
    for (origin, at_messages, at_the_store) in [
        (&*store, true, false),
        ("https://api.example.com", true, false),
        (SHOP, true, true),
        (&*messages, false, false),
        ("http://api.example.com", false, false),
        (EVIL, false, false),
        ("null", false, false),
    ] {
        let expected = at_messages.then_some(origin);
        let sent = service.message_request().key(&service.key).json(HELLO).header("origin", origin).send().await;
        assert_eq!((sent.status(), allowed(&sent)), (202, expected), "{origin}");
        let request = Request::new(service.messages_address, "OPTIONS", "/v1/messages");
        assert_eq!(allowed(&preflight(request, origin, "POST").await), expected, "{origin}");
        let listed = service.call("GET", "/v1/pets").header("origin", origin).send().await;
        assert_eq!(allowed(&listed), at_the_store.then_some(origin), "{origin}");
    }
}

#[tokio::test]
async fn operations_listener_allows_no_origin() {
    let service = with_origins().await;
    let answer = Request::new(service.ops_address, "GET", "/livez").header("origin", SHOP).send().await;
    assert_eq!((answer.status(), cors_headers(&answer)), (200, vec![]));
    let preflight = preflight(Request::new(service.ops_address, "OPTIONS", "/livez"), SHOP, "GET").await;
    assert_eq!(preflight.code(), "method_not_allowed");
}

#[tokio::test]
async fn options_without_preflight_headers_is_a_normal_method() {
    let service = with_origins().await;
    for (address, path, code) in [
        (service.store_address, "/v1/pets", "method_not_allowed"),
        (service.store_address, "/v1/nothing", "not_found"),
        (service.messages_address, "/v1/messages", "method_not_allowed"),
    ] {
        let request = || Request::new(address, "OPTIONS", path);
        for request in [request(), request().header("origin", SHOP)] {
            assert_eq!(request.send().await.code(), code, "{path}");
        }
    }
}

async fn with_origins() -> Service {
    Service::start_with(Setup { cors_origins: vec![SHOP.to_owned(), OTHER.to_owned()], ..Setup::default() }).await
}

async fn preflight(request: Request, origin: &str, method: &str) -> Response {
    let request = request.header("origin", origin).header("access-control-request-method", method);
    request.header("access-control-request-headers", "authorization,content-type").send().await
}

fn allowed(answer: &Response) -> Option<&str> {
    answer.header("access-control-allow-origin")
}

fn cors_headers(answer: &Response) -> Vec<&str> {
    let names = answer.head.headers.keys().map(http::HeaderName::as_str);
    names.filter(|name| name.starts_with("access-control-")).collect()
}
