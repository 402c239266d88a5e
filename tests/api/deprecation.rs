//! `GET /pets/{petId}` before and after its removal at 2030-12-05T00:00:00Z.

use petstore::config::BaseUrl;
use petstore::domain::Timestamp;
use testkit::{Request, Response};

use crate::service::{Service, Setup};

#[tokio::test]
async fn every_response_of_the_operation_is_marked_deprecated() {
    let service = with_an_animal(Setup::default()).await;
    let get = |path: &str| service.request("GET", path);
    let keyed = |path: &str| get(path).key(&service.key);
    let answers = [
        (200, keyed("/v1/pets/1").send().await),
        (200, service.request("HEAD", "/v1/pets/1").key(&service.key).send().await),
        (400, keyed("/v1/pets/1?x=1").send().await),
        (401, get("/v1/pets/1").send().await),
        (401, get("/v1/pets/1").key("wrong").send().await),
        (401, service.request("HEAD", "/v1/pets/1").send().await),
        (404, keyed("/v1/pets/2").send().await),
        (404, keyed("/v1/pets/abc").send().await),
        (404, keyed("/v1/pets/%FF").send().await),
        (413, keyed("/v1/pets/1").json(vec![b' '; 70_000]).send().await),
        (415, keyed("/v1/pets/1").header("content-type", "text/plain").body("x").send().await),
        (500, {
            let database = service.database();
            database.execute_batch("ALTER TABLE pets RENAME TO elsewhere").unwrap();
            keyed("/v1/pets/1").send().await
        }),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status(), status, "{}", answer.shown());
        assert_deprecated(&answer, &format!("http://{}", service.store_address));
    }
}

#[tokio::test]
async fn links_use_the_public_address() {
    let base_url = BaseUrl::parse("https://api.example.com/petstore/v1").unwrap();
    let service = with_an_animal(Setup { base_url: Some(base_url), ..Setup::default() }).await;
    assert_deprecated(&service.get("/v1/pets/1").await, "https://api.example.com/petstore");
    let created = service.post("/v1/pets", r#"{"name":"Tom","categoryId":4}"#).await;
    assert_eq!(created.header("location"), Some("https://api.example.com/petstore/v1/pets/2"));
}

#[tokio::test]
async fn deprecation_page_is_served() {
    let service = Service::start().await;
    assert_eq!(service.request("GET", "/docs/deprecations").send().await.status(), 200);
}

#[tokio::test]
async fn other_operations_are_not_deprecated() {
    let service = with_an_animal(Setup::default()).await;
    let list = service.get("/v1/pets").await;
    let created = service.post("/v1/pets", r#"{"name":"Tom","categoryId":4}"#).await;
    let other_method = service.request("DELETE", "/v1/pets/1").send().await;
    let sent = service.message(r#"{"message":"Hello"}"#).await;
    let slash = service.get("/v1/pets/1/").await;
    let below = service.get("/v1/pets/1/owner").await;
    let other_door = Request::new(service.messages_address, "GET", "/v1/pets/1").send().await;
    for answer in [list, created, other_method, sent, slash, below, other_door] {
        for name in ["deprecation", "sunset", "link"] {
            assert_eq!(answer.header(name), None, "{}", answer.shown());
        }
    }
}

#[tokio::test]
async fn operation_works_until_the_last_millisecond() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(midnight().minus_one_millisecond());

    assert_eq!(service.get("/v1/pets/1").await.status(), 200);
    assert_eq!(service.get("/v1/pets/9").await.code(), "not_found");
    assert_eq!(service.request("GET", "/v1/pets/1").send().await.code(), "missing_api_key");
    assert_eq!(service.request("DELETE", "/v1/pets/1").send().await.code(), "method_not_allowed");
    let created = service.post("/v1/pets", r#"{"name":"Tom","categoryId":4}"#).await;
    let location = format!("http://{}/v1/pets/2", service.store_address);
    assert_eq!(created.header("location"), Some(location.as_str()));
    let document = document(&service).await;
    assert_eq!(document["paths"]["/pets/{petId}"]["get"]["deprecated"], true);
    assert!(document["paths"]["/pets"]["post"]["responses"]["201"]["headers"].get("Location").is_some());
}

#[tokio::test]
async fn removed_operation_is_410_with_or_without_a_key() {
    let service = with_an_animal(Setup::default()).await;
    for later in [0, 1, 366 * 24 * 3_600_000] {
        service.clock.set(Timestamp::from_milliseconds(midnight().as_milliseconds() + later));
        for path in ["/v1/pets/1", "/v1/pets/99", "/v1/pets/abc", "/v1/pets/1?x=1"] {
            let answers = [
                service.get(path).await,
                service.request("GET", path).send().await,
                service.request("GET", path).key("wrong").send().await,
                service.request("GET", path).header("content-type", "text/plain").body("x").send().await,
            ];
            for answer in answers {
                assert_eq!((answer.status(), answer.code().as_str()), (410, "operation_removed"), "{path}");
                assert_deprecated(&answer, &format!("http://{}", service.store_address));
                let message = answer.json()["message"].as_str().unwrap().to_owned();
                assert!(message.contains("GET /pets") && message.contains("status"), "{message}");
            }
            for head in [service.request("HEAD", path), service.request("HEAD", path).key(&service.key)] {
                let head = head.send().await;
                assert_eq!((head.status(), head.body.as_str()), (410, ""), "{path}");
                assert_deprecated(&head, &format!("http://{}", service.store_address));
            }
        }
    }
}

#[tokio::test]
async fn path_of_removed_operation_has_no_other_methods() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(midnight());
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
        for path in ["/v1/pets/1", "/v1/pets/abc"] {
            let answer = service.request(method, path).send().await;
            assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{method} {path}");
            assert_eq!(answer.header("allow"), None, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn other_operations_survive_the_removal() {
    let service = with_an_animal(Setup::default()).await;
    service.clock.set(midnight());

    let created = service.post("/v1/pets", r#"{"name":"Tom","categoryId":4}"#).await;
    assert_eq!(created.status(), 201);
    assert_eq!(created.header("location"), None, "there is nothing to point to");
    assert_eq!(service.get("/v1/pets").await.json().as_array().unwrap().len(), 2);
    assert_eq!(service.message(r#"{"message":"Hello"}"#).await.status(), 202);
}

#[tokio::test]
async fn document_drops_the_operation_at_midnight() {
    let service = Service::start().await;
    service.clock.set(midnight());
    let document = document(&service).await;
    let paths = document["paths"].as_object().unwrap();
    assert!(!paths.contains_key("/pets/{petId}"));
    assert!(paths.contains_key("/pets") && paths.contains_key("/store/orders") && paths.contains_key("/messages"));
    assert!(!document.to_string().contains("getPet"), "no link leads there");
    assert!(document["paths"]["/pets"]["post"]["responses"]["201"]["headers"].get("Location").is_none());
}

async fn with_an_animal(setup: Setup) -> Service {
    let service = Service::start_with(setup).await;
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.status(), 201);
    service
}

async fn document(service: &Service) -> serde_json::Value {
    service.request("GET", "/openapi.json").send().await.json()
}

fn midnight() -> Timestamp {
    let midnight: jiff::Timestamp = "2030-12-05T00:00:00Z".parse().unwrap();
    Timestamp::from_milliseconds(midnight.as_millisecond())
}

fn assert_deprecated(answer: &Response, root: &str) {
    let link = format!(r#"<{root}/docs/deprecations>; rel="deprecation", <{root}/v1/pets>; rel="successor-version""#);
    assert_eq!(answer.header("deprecation"), Some("@1795132800"), "{}", answer.shown());
    assert_eq!(answer.header("sunset"), Some("Thu, 05 Dec 2030 00:00:00 GMT"), "{}", answer.shown());
    assert_eq!(answer.header("link"), Some(link.as_str()), "{}", answer.shown());
}
