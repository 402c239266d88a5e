//! `GET /pets/{petId}` before and after its removal at 2030-12-05T00:00:00Z.

use std::time::Duration;

use petstore::api::BaseUrl;
use testkit::{Request, Response};

use crate::service::{HELLO, REMOVAL, REX, Service, Setup};

/// `tests/contract/operations.rs` requires the headers of the other responses.
#[tokio::test]
async fn head_and_failures_are_marked_deprecated() {
    let service = with_an_animal(Setup::default()).await;
    let root = format!("http://{}", service.store_address);
    assert_deprecated(&service.call("HEAD", "/v1/pets/1").send().await, 200, &root);
    assert_deprecated(&service.request("HEAD", "/v1/pets/1").send().await, 401, &root);
    service.sql("ALTER TABLE pets RENAME TO elsewhere");
    assert_deprecated(&service.get("/v1/pets/1").await, 500, &root);
}

#[tokio::test]
async fn links_use_the_public_address() {
    let base_url = BaseUrl::parse("https://api.example.com/petstore/v1").ok();
    let service = with_an_animal(Setup { base_url, ..Setup::default() }).await;
    assert_deprecated(&service.get("/v1/pets/1").await, 200, "https://api.example.com/petstore");
    let created = service.post("/v1/pets", REX).await;
    assert_eq!(created.header("location"), Some("https://api.example.com/petstore/v1/pets/2"));
}

/// `tests/contract` shows it for the other operations.
#[tokio::test]
async fn other_paths_are_not_deprecated() {
    let service = with_an_animal(Setup::default()).await;
    for request in [
        service.request("GET", "/v1/pets/1/"),
        service.request("GET", "/v1/pets/1/owner"),
        service.request("DELETE", "/v1/pets/1"),
        Request::new(service.messages_address, "GET", "/v1/pets/1"),
    ] {
        let answer = request.key(&service.key).send().await;
        for name in ["deprecation", "sunset", "link"] {
            assert_eq!(answer.header(name), None, "{}", answer.shown());
        }
    }
}

#[tokio::test]
async fn operation_works_until_the_last_millisecond() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(REMOVAL.minus(Duration::from_millis(1)));
    assert_eq!(service.get("/v1/pets/1").await.status(), 200);
    assert_eq!(service.request("GET", "/v1/pets/1").send().await.code(), "missing_api_key");
    assert_eq!(service.request("DELETE", "/v1/pets/1").send().await.code(), "method_not_allowed");
    let created = service.post("/v1/pets", REX).await;
    assert_eq!(created.header("location"), Some(&*format!("http://{}/v1/pets/2", service.store_address)));
    assert_eq!(service.document().await["paths"]["/pets/{petId}"]["get"]["deprecated"], true);
}

#[tokio::test]
async fn removed_operation_is_410_with_or_without_a_key() {
    let service = with_an_animal(Setup::default()).await;
    let root = format!("http://{}", service.store_address);
    for days in [0, 1, 366] {
        service.clock.set(REMOVAL.plus(Duration::from_hours(24 * days)));
        for path in ["/v1/pets/1", "/v1/pets/99", "/v1/pets/abc", "/v1/pets/1?x=1"] {
            let get = || service.request("GET", path);
            let wrong_type = get().header("content-type", "text/plain").body("x");
            for request in [get().key(&service.key), get(), get().key("wrong"), wrong_type] {
                let answer = request.send().await;
                assert_deprecated(&answer, 410, &root);
                assert_eq!(answer.code(), "operation_removed", "{path}");
            }
            for head in [service.request("HEAD", path), service.call("HEAD", path)] {
                let head = head.send().await;
                assert_deprecated(&head, 410, &root);
                assert_eq!(head.body, "", "{path}");
            }
            for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
                let other = service.request(method, path).send().await;
                assert_eq!((other.code().as_str(), other.header("allow")), ("not_found", None), "{method} {path}");
            }
        }
    }
    let created = service.post("/v1/pets", REX).await;
    assert_eq!((created.status(), created.header("location")), (201, None), "no operation reads the address");
    assert_eq!(service.ids("/v1/pets").await, [1, 2]);
    assert_eq!(service.message(HELLO).await.status(), 202);
    // `tests/contract` compares the whole document.
    assert!(!service.document().await.to_string().contains("getPet"));
}

async fn with_an_animal(setup: Setup) -> Service {
    let service = Service::start_with(setup).await;
    service.create_pets(1).await;
    service
}

fn assert_deprecated(answer: &Response, status: u16, root: &str) {
    let link = format!(r#"<{root}/docs/deprecations>; rel="deprecation", <{root}/v1/pets>; rel="successor-version""#);
    assert_eq!(answer.status(), status, "{}", answer.shown());
    let headers = ["deprecation", "sunset", "link"].map(|name| answer.header(name));
    assert_eq!(headers, [Some("@1795132800"), Some("Thu, 05 Dec 2030 00:00:00 GMT"), Some(&*link)]);
}
