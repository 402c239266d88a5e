//! A service whose listeners are bound to every address, so that only the clients know its host.

use testkit::{Request, Response};

use crate::service::{REMOVAL, REX, Service, Setup};

#[tokio::test]
async fn links_are_relative_without_a_known_host() {
    let service = service().await;
    for number in 1..=2 {
        let created = service.post("/v1/pets", REX).await;
        assert_eq!(created.header("location"), Some(format!("/v1/pets/{number}").as_str()));
        assert_eq!(service.get(created.header("location").unwrap()).await.status(), 200);
    }
    let page = service.get("/v1/pets?limit=1&status=available").await;
    assert_eq!(page.header("link"), Some(r#"</v1/pets?limit=1&status=available&after=1>; rel="next""#));
    assert_eq!(service.ids("/v1/pets?limit=1&status=available&after=1").await, [2]);
    let pet = service.get("/v1/pets/1").await;
    let link = r#"</docs/deprecations>; rel="deprecation", </v1/pets>; rel="successor-version""#;
    assert_eq!(pet.header("link"), Some(link));
}

#[tokio::test]
async fn document_and_pages_name_the_host_of_the_request() {
    let service = service().await;
    let messages = service.messages_address.port();
    let mut tags = Vec::new();
    for host in ["pets.test:9090", "pets.test:9090", "shop.test", "pets.test:9090"] {
        let served = get(&service, "/openapi.json", host).await;
        assert_eq!(served.header("cache-control"), Some("no-cache"));
        assert!(!served.body.contains("0.0.0.0") && !served.body.contains("127.0.0.1"), "{}", served.body);
        assert_eq!(store_url(&served), format!("http://{host}/v1"));
        tags.push(served.header("etag").unwrap().to_owned());
    }
    assert!(tags[0] == tags[1] && tags[0] != tags[2] && tags[0] == tags[3], "{tags:?}");

    let document = get(&service, "/openapi.json", "pets.test:9090").await.json();
    let messages_url = &document["paths"]["/messages"]["servers"][0]["variables"]["messagesUrl"]["default"];
    assert_eq!(messages_url, &format!("http://pets.test:{messages}/v1"));
    let reference = get(&service, "/docs", "pets.test:9090").await;
    let policy = format!("connect-src 'self' http://pets.test:9090 http://pets.test:{messages};");
    assert!(reference.shown().contains(&policy), "{}", reference.shown());
    for path in ["/", "/docs/deprecations"] {
        let page = get(&service, path, "pets.test:9090").await.body;
        assert!(page.contains("http://pets.test:9090/v1/pets") && !page.contains("0.0.0.0"), "{path}: {page}");
    }
}

/// Compression takes milliseconds, and a client can name any number of hosts.
#[tokio::test]
async fn document_is_not_made_anew_for_each_host() {
    let service = service().await;
    let messages = service.messages_address.port();
    for (path, time) in [("/openapi.json", None), ("/openapi-3.0.json", None), ("/openapi.json", Some(REMOVAL))] {
        time.into_iter().for_each(|time| service.clock.set(time));
        let first = get(&service, path, "pets.test:9090").await;
        let request = service.request("GET", path).host("shop.test").header("accept-encoding", "gzip");
        let other = request.send().await;
        assert_eq!(other.header("content-encoding"), None, "{path}");
        let renamed = first.body.replace("pets.test:9090", "shop.test").replace("pets.test", "shop.test");
        assert!(other.body == renamed && renamed.contains(&format!("\"http://shop.test:{messages}/v1\"")), "{path}");
    }
}

#[tokio::test]
async fn host_of_an_absolute_target_replaces_the_header() {
    let service = service().await;
    for (target, host) in [("http://pets.test:9090", "pets.test:9090"), ("", "shop.test")] {
        let request = format!("GET {target}/openapi.json HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
        let answer = testkit::raw(service.store_address, request.as_bytes()).await;
        assert!(answer.contains(&format!("\"http://{host}/v1\"")), "{target}: {answer}");
    }
}

/// `a_host_that_is_not_one_is_not_repeated` tries others.
#[tokio::test]
async fn host_with_other_characters_is_not_repeated() {
    let service = service().await;
    for host in ["a;b", "a,b", "pets.test:99999"] {
        let document = get(&service, "/openapi.json", host).await;
        assert!(!document.shown().contains(host), "{host}: {}", document.shown());
        let reference = get(&service, "/docs", host).await;
        assert!(reference.head.headers.values().all(|value| !value.to_str().unwrap().contains(host)), "{host}");
    }
}

#[tokio::test]
async fn pages_of_the_same_host_may_send_messages() {
    let service = service().await;
    let store = service.store_address.port();
    let host = format!("pets.test:{}", service.messages_address.port());
    let own = format!("http://pets.test:{store}");
    let evil = format!("http://evil.test:{store}");
    for origin in [&own, &evil, "https://pets.test", "http://pets.test", "http://pets.test:1", "null"] {
        let preflight = Request::new(service.messages_address, "OPTIONS", "/v1/messages").host(&host);
        let preflight = preflight.header("origin", origin).header("access-control-request-method", "POST");
        let answer = preflight.send().await;
        assert_eq!(answer.header("access-control-allow-origin"), (origin == own).then_some(origin), "{origin}");
    }
}

async fn service() -> Service {
    Service::start_with(Setup { any_host: true, ..Setup::default() }).await
}

/// The address of the store in a document.
fn store_url(document: &Response) -> serde_json::Value {
    document.json()["servers"][0]["variables"]["storeUrl"]["default"].take()
}

/// The response to a client that reaches the store listener as `host`.
async fn get(service: &Service, path: &str, host: &str) -> Response {
    service.request("GET", path).host(host).send().await
}
