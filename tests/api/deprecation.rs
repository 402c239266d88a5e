//! `GET /pets/{petId}` before and after its removal at 2030-12-05T00:00:00Z.

use std::time::Duration;

use petstore::api::BaseUrl;
use testkit::{Request, Response};

use crate::service::{HELLO, LARGEST, REMOVAL, REX, Service, Setup};

#[tokio::test]
async fn every_response_of_the_operation_is_marked_deprecated() {
    let service = with_an_animal(Setup::default()).await;
    let get = |path: &str| service.request("GET", path);
    let keyed = |path: &str| get(path).key(&service.key);
    for (status, request) in [
        (200, keyed("/v1/pets/1")),
        (200, service.request("HEAD", "/v1/pets/1").key(&service.key)),
        (400, keyed("/v1/pets/1?x=1")),
        (401, get("/v1/pets/1")),
        (401, get("/v1/pets/1").key("wrong")),
        (401, service.request("HEAD", "/v1/pets/1")),
        (404, keyed("/v1/pets/2")),
        (404, keyed("/v1/pets/abc")),
        (404, keyed("/v1/pets/%FF")),
        (413, keyed("/v1/pets/1").json(vec![b' '; LARGEST + 1])),
        (415, keyed("/v1/pets/1").header("content-type", "text/plain").body("x")),
    ] {
        assert_deprecated(&request.send().await, status, &format!("http://{}", service.store_address));
    }
    service.database().execute_batch("ALTER TABLE pets RENAME TO elsewhere").unwrap();
    let failed = service.get("/v1/pets/1").await;
    assert_deprecated(&failed, 500, &format!("http://{}", service.store_address));
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
    assert_eq!(service.get("/v1/pets/9").await.code(), "not_found");
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
            for request in [
                get().key(&service.key),
                get(),
                get().key("wrong"),
                get().header("content-type", "text/plain").body("x"),
            ] {
                let answer = request.send().await;
                assert_deprecated(&answer, 410, &root);
                assert_eq!(answer.code(), "operation_removed", "{path}");
                assert!(answer.body.contains("GET /pets") && answer.body.contains("status"), "{}", answer.body);
            }
            for head in [service.request("HEAD", path), service.request("HEAD", path).key(&service.key)] {
                let head = head.send().await;
                assert_deprecated(&head, 410, &root);
                assert_eq!(head.body, "", "{path}");
            }
        }
    }
}

#[tokio::test]
async fn path_of_removed_operation_has_no_other_methods() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(REMOVAL);
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
        for path in ["/v1/pets/1", "/v1/pets/abc"] {
            let answer = service.request(method, path).send().await;
            assert_eq!((answer.code().as_str(), answer.header("allow")), ("not_found", None), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn other_operations_survive_the_removal() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(REMOVAL);

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
    assert_eq!(answer.header("deprecation"), Some("@1795132800"), "{}", answer.shown());
    assert_eq!(answer.header("sunset"), Some("Thu, 05 Dec 2030 00:00:00 GMT"), "{}", answer.shown());
    assert_eq!(answer.header("link"), Some(link.as_str()), "{}", answer.shown());
}
