//! Which pages of other origins a browser lets call the API.

use petstore::config::BaseUrl;
use testkit::{Request, Response};

use crate::service::{Service, Setup};

const SHOP: &str = "https://shop.example.com";
const OTHER: &str = "http://localhost:3000";

#[tokio::test]
async fn no_origin_is_allowed_by_default() {
    let service = Service::start().await;
    let own = format!("http://{}", service.store_address);
    for origin in [SHOP, "null", &own] {
        let answer = service.request("GET", "/v1/pets").key(&service.key).header("origin", origin).send().await;
        assert_eq!(answer.status(), 200);
        assert_eq!(cors_headers(&answer), Vec::<String>::new(), "{origin}");
        let preflight = preflight(service.request("OPTIONS", "/v1/pets"), origin, "POST").await;
        assert_eq!(preflight.code(), "method_not_allowed");
        assert_eq!(cors_headers(&preflight), Vec::<String>::new(), "{origin}");
    }
}

#[tokio::test]
async fn only_configured_origins_are_allowed() {
    let service = with_origins().await;
    for origin in [SHOP, OTHER] {
        for request in service.operations() {
            let answer = request.key(&service.key).header("origin", origin).send().await;
            assert_eq!(allowed(&answer), Some(origin));
            assert!(answer.list("vary").contains(&"origin".to_owned()));
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
    }
    for origin in [
        "https://shop.example.com.evil.example",
        "https://evil.example",
        "http://shop.example.com",
        "https://shop.example.com:8443",
        "https://example.com",
        "http://localhost",
        "null",
    ] {
        for request in service.operations() {
            let answer = request.key(&service.key).header("origin", origin).send().await;
            assert_eq!(allowed(&answer), None, "{origin}");
        }
    }
    let without_origin = service.get("/v1/pets").await;
    assert_eq!(allowed(&without_origin), None);
    assert!(without_origin.list("vary").contains(&"origin".to_owned()), "a cache must not give it to a page");
}

#[tokio::test]
async fn errors_are_readable_across_origins() {
    let service = with_origins().await;
    let request = |method: &str, path: &str| service.request(method, path).header("origin", SHOP);
    for (answer, status) in [
        (request("GET", "/v1/pets").send().await, 401),
        (request("GET", "/v1/pets?limit=0").key(&service.key).send().await, 400),
        (request("GET", "/v1/nothing").send().await, 404),
        (request("DELETE", "/v1/pets").send().await, 405),
        (request("POST", "/v1/pets").key(&service.key).json(" ".repeat(70_000)).send().await, 413),
    ] {
        assert_eq!(answer.status(), status);
        assert_eq!(allowed(&answer), Some(SHOP), "{status}");
    }
}

#[tokio::test]
async fn documented_headers_are_exposed_across_origins() {
    let service = with_origins().await;
    let answer = service.request("GET", "/v1/pets").key(&service.key).header("origin", SHOP).send().await;
    let exposed = answer.list("access-control-expose-headers");
    for name in [
        "deprecation",
        "idempotent-replayed",
        "link",
        "location",
        "retry-after",
        "sunset",
        "www-authenticate",
        "x-request-id",
    ] {
        assert!(exposed.contains(&name.to_owned()), "{name}: {exposed:?}");
    }
}

#[tokio::test]
async fn preflight_precedes_every_other_check() {
    let service = with_origins().await;
    let doors = [
        (service.store_address, "/v1/pets", "POST"),
        (service.store_address, "/v1/pets?limit=0", "GET"),
        (service.store_address, "/v1/pets/1", "GET"),
        (service.store_address, "/v1/nothing", "GET"),
        (service.messages_address, "/v1/messages", "POST"),
    ];
    for (address, path, method) in doors {
        let answer = preflight(Request::new(address, "OPTIONS", path), SHOP, method).await;
        assert!(answer.head.status.is_success(), "{path}: {}", answer.shown());
        assert_eq!((allowed(&answer), answer.body.as_str()), (Some(SHOP), ""), "{path}");
        assert_eq!(answer.list("access-control-allow-methods"), ["get", "head", "post"], "{path}");
        let headers = answer.list("access-control-allow-headers");
        for name in ["authorization", "content-type", "idempotency-key", "x-request-id"] {
            assert!(headers.contains(&name.to_owned()), "{name}: {headers:?}");
        }
        assert!(answer.header("x-request-id").is_some());

        let stranger = preflight(Request::new(address, "OPTIONS", path), "https://evil.example", method).await;
        assert_eq!(allowed(&stranger), None, "{path}");
    }
}

#[tokio::test]
async fn messages_listener_allows_store_and_configured_origins() {
    let base_url = BaseUrl::parse("https://API.example.com:443/petstore/v1").unwrap();
    let service = Service::start_with(Setup {
        base_url: Some(base_url),
        cors_origins: vec![SHOP.to_owned()],
        ..Setup::default()
    })
    .await;
    let bound = format!("http://{}", service.store_address);
    for (origin, expected) in [
        (bound.as_str(), true),
        ("https://api.example.com", true),
        (SHOP, true),
        (&format!("http://{}", service.messages_address), false),
        ("http://api.example.com", false),
        ("https://evil.example", false),
        ("null", false),
    ] {
        let expected = expected.then_some(origin);
        let sent = service.message_request().key(&service.key).json(r#"{"message":"Hello"}"#);
        let sent = sent.header("origin", origin).send().await;
        assert_eq!((sent.status(), allowed(&sent)), (202, expected), "{origin}");
        let path = "/v1/messages";
        let asked = preflight(Request::new(service.messages_address, "OPTIONS", path), origin, "POST").await;
        assert_eq!(allowed(&asked), expected, "{origin}");
    }
    for origin in [bound.as_str(), "https://api.example.com"] {
        let at_the_store = service.request("GET", "/v1/pets").key(&service.key).header("origin", origin).send().await;
        assert_eq!(allowed(&at_the_store), None, "the exception is for the messages door");
    }
}

#[tokio::test]
async fn operations_listener_allows_no_origin() {
    let service = with_origins().await;
    let answer = Request::new(service.ops_address, "GET", "/livez").header("origin", SHOP).send().await;
    assert_eq!(answer.status(), 200);
    assert_eq!(cors_headers(&answer), Vec::<String>::new());
    let asked = preflight(Request::new(service.ops_address, "OPTIONS", "/livez"), SHOP, "GET").await;
    assert_eq!(asked.code(), "method_not_allowed");
}

#[tokio::test]
async fn options_without_preflight_headers_is_a_normal_method() {
    let service = with_origins().await;
    for (address, path, code) in [
        (service.store_address, "/v1/pets", "method_not_allowed"),
        (service.store_address, "/v1/nothing", "not_found"),
        (service.messages_address, "/v1/messages", "method_not_allowed"),
    ] {
        let plain = Request::new(address, "OPTIONS", path).send().await;
        assert_eq!(plain.code(), code, "{path}");
        let with_origin = Request::new(address, "OPTIONS", path).header("origin", SHOP).send().await;
        assert_eq!(with_origin.code(), code, "{path}");
    }
}

async fn with_origins() -> Service {
    Service::start_with(Setup { cors_origins: vec![SHOP.to_owned(), OTHER.to_owned()], ..Setup::default() }).await
}

async fn preflight(request: Request, origin: &str, method: &str) -> Response {
    request
        .header("origin", origin)
        .header("access-control-request-method", method)
        .header("access-control-request-headers", "authorization,content-type")
        .send()
        .await
}

fn allowed(answer: &Response) -> Option<&str> {
    answer.header("access-control-allow-origin")
}

fn cors_headers(answer: &Response) -> Vec<String> {
    let names = answer.head.headers.keys().map(|name| name.as_str().to_owned());
    names.filter(|name| name.starts_with("access-control-")).collect()
}
