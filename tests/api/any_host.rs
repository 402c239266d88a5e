//! A service whose listeners are bound to every address, so that only the clients know its host.

use testkit::raw;

use crate::service::{Service, Setup};

#[tokio::test]
async fn links_are_relative_without_a_known_host() {
    let service = service().await;
    for number in 1..=2 {
        let created = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
        assert_eq!(created.header("location"), Some(format!("/v1/pets/{number}").as_str()));
        assert_eq!(service.get(created.header("location").unwrap()).await.status(), 200);
    }
    let page = service.get("/v1/pets?limit=1&status=available").await;
    assert_eq!(page.header("link"), Some(r#"</v1/pets?limit=1&status=available&after=1>; rel="next""#));
    assert_eq!(service.get("/v1/pets?limit=1&status=available&after=1").await.json()[0]["id"], 2);
    let pet = service.get("/v1/pets/1").await;
    let link = r#"</docs/deprecations>; rel="deprecation", </v1/pets>; rel="successor-version""#;
    assert_eq!(pet.header("link"), Some(link));
}

#[tokio::test]
async fn document_and_pages_name_the_host_of_the_request() {
    let service = service().await;
    let messages = service.messages_address.port();

    let (head, document) = get(&service, "/openapi.json", "pets.test:9090").await;
    assert!(head.contains("cache-control: no-store\r\n"), "{head}");
    for stranger in ["0.0.0.0", "127.0.0.1"] {
        assert!(!document.contains(stranger), "{stranger}: {document}");
    }
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["servers"][0]["url"], "http://pets.test:9090/v1");
    assert_eq!(document["paths"]["/messages"]["servers"][0]["url"], format!("http://pets.test:{messages}/v1"));
    assert_eq!(document["info"]["contact"]["url"], "http://pets.test:9090/docs");

    let (head, _) = get(&service, "/docs", "pets.test:9090").await;
    let policy = format!("connect-src 'self' http://pets.test:9090 http://pets.test:{messages};");
    assert!(head.contains(&policy), "{head}");
    for page in ["/", "/docs/deprecations"] {
        let (_, body) = get(&service, page, "pets.test:9090").await;
        assert!(body.contains("http://pets.test:9090/v1/pets") && !body.contains("0.0.0.0"), "{page}: {body}");
    }
}

#[tokio::test]
async fn host_with_other_characters_is_not_repeated() {
    let service = service().await;
    let own = format!("http://127.0.0.1:{}/v1", service.store_address.port());
    for host in ["a'onload='", "user@pets.test", "a;b", "a,b", "a:port", "pets.test:99999"] {
        let (head, document) = get(&service, "/openapi.json", host).await;
        assert!(!head.contains(host) && !document.contains(host), "{host}: {head}");
        if head.starts_with("HTTP/1.1 200") {
            let document: serde_json::Value = serde_json::from_str(&document).unwrap();
            assert_eq!(document["servers"][0]["url"], own, "{host}");
        }
        let (head, _) = get(&service, "/docs", host).await;
        assert!(!head.contains(host), "{host}: {head}");
    }
}

#[tokio::test]
async fn pages_of_the_same_host_may_send_messages() {
    let service = service().await;
    let store = service.store_address.port();
    let allowed = async |origin: &str| {
        let preflight = format!(
            "OPTIONS /v1/messages HTTP/1.1\r\nHost: pets.test:{}\r\nOrigin: {origin}\r\nConnection: close\r\n\
             Access-Control-Request-Method: POST\r\n\r\n",
            service.messages_address.port()
        );
        let answer = raw(service.messages_address, preflight.as_bytes()).await;
        answer.contains(&format!("access-control-allow-origin: {origin}\r\n"))
    };
    assert!(allowed(&format!("http://pets.test:{store}")).await);
    for other in ["http://evil.test", "https://pets.test", "http://pets.test", "http://pets.test:1", "null"] {
        assert!(!allowed(other).await, "{other}");
    }
    assert!(!allowed(&format!("http://evil.test:{store}")).await);
}

#[tokio::test]
async fn configured_addresses_ignore_the_host_header() {
    let service = Service::start().await;
    let (head, document) = get(&service, "/openapi.json", "pets.test:9090").await;
    assert!(!document.contains("pets.test") && !head.contains("cache-control"), "{head}");
    let created = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    assert_eq!(created.header("location"), Some(format!("http://{}/v1/pets/1", service.store_address).as_str()));
}

async fn service() -> Service {
    Service::start_with(Setup { any_host: true, ..Setup::default() }).await
}

/// Head and body of a response of the store listener, to a client that reaches it as `host`.
async fn get(service: &Service, path: &str, host: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = raw(service.store_address, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (format!("{head}\r\n"), body.to_owned())
}
