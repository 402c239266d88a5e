//! Documents at well-known addresses of the store listener.

use std::time::Duration;

use petstore::config::BaseUrl;
use petstore::domain::Timestamp;
use serde_json::{Value, json};
use testkit::Request;

use crate::service::{NOW, Service, Setup};

const CATALOG: &str = "/.well-known/api-catalog";
const SECURITY: &str = "/.well-known/security.txt";

#[tokio::test]
async fn catalog_names_addresses_that_respond() {
    let service = Service::start().await;
    let catalog = service.request("GET", CATALOG).send().await;
    let profile = r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;
    assert_eq!((catalog.status(), catalog.header("content-type")), (200, Some(profile)));

    let linkset = &catalog.json()["linkset"];
    let (store, messages) =
        (format!("http://{}", service.store_address), format!("http://{}", service.messages_address));
    assert_eq!(linkset[0]["anchor"], format!("{store}{CATALOG}"));
    assert_eq!(linkset[0]["item"], json!([{ "href": format!("{store}/v1") }, { "href": format!("{messages}/v1") }]));
    for (api, root) in [(&linkset[1], &store), (&linkset[2], &messages)] {
        assert_eq!(api["anchor"], format!("{root}/v1"));
        assert_eq!(api["status"][0]["href"], format!("{root}/readyz"));
        let links = |relation| api[relation].as_array().unwrap().iter().map(move |link| (relation, link));
        let links: Vec<_> = ["service-desc", "service-doc", "status"].into_iter().flat_map(links).collect();
        assert_eq!(links.len(), 4, "two versions of the document, its page and the health check: {api}");
        for (relation, link) in links {
            let (target, kind) = (&link["href"], link["type"].as_str().unwrap());
            let answer = follow(target).send().await;
            assert_eq!(answer.status(), 200, "{relation}: {target}");
            assert!(answer.header("content-type").unwrap().starts_with(kind), "{relation}: {}", answer.shown());
        }
    }
}

/// A request for an absolute URL.
fn follow(url: &Value) -> Request {
    let (address, path) = url.as_str().unwrap().strip_prefix("http://").unwrap().split_once('/').unwrap();
    Request::new(address.parse().unwrap(), "GET", &format!("/{path}"))
}

#[tokio::test]
async fn head_of_the_catalog_links_to_it() {
    let service = Service::start().await;
    for method in ["HEAD", "GET"] {
        let answer = service.request(method, CATALOG).send().await;
        assert_eq!(answer.header("link"), Some(r#"</.well-known/api-catalog>; rel="api-catalog""#), "{method}");
        assert_eq!((answer.status(), answer.body.is_empty()), (200, method == "HEAD"));
    }
    let tag = service.request("GET", CATALOG).send().await.header("etag").unwrap().to_owned();
    assert_eq!(service.request("GET", CATALOG).header("if-none-match", &tag).send().await.status(), 304);
    assert_eq!(service.request("POST", CATALOG).send().await.list("allow"), ["get", "head"]);
    assert_eq!(Request::new(service.messages_address, "GET", CATALOG).send().await.code(), "not_found");
}

#[tokio::test]
async fn catalog_has_public_addresses() {
    let base_url = BaseUrl::parse("https://Shop.example:443/pets/v1").ok();
    let service = Service::start_with(Setup { base_url, ..Setup::default() }).await;
    let linkset = &service.request("GET", CATALOG).send().await.json()["linkset"];
    assert_eq!(linkset[0]["anchor"], format!("https://shop.example{CATALOG}"));
    assert_eq!(linkset[1]["service-doc"][0]["href"], "https://Shop.example:443/pets/docs");

    let service = Service::start_with(Setup { any_host: true, ..Setup::default() }).await;
    let answer = service.request("GET", CATALOG).host("pets.test:9090").send().await;
    assert_eq!(answer.json()["linkset"][1]["anchor"], "http://pets.test:9090/v1");
}

#[tokio::test]
async fn security_txt_has_the_contacts_and_never_expires() {
    let service = with_contacts("https://shop.example/v1").await;
    let fetch = async || service.request("GET", SECURITY).send().await;
    let first = fetch().await;
    assert_eq!((first.status(), first.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(
        first.body,
        "Contact: mailto:security@shop.example\n\
         Contact: https://shop.example/report\n\
         Expires: 2027-02-18T00:00:00.000Z\n\
         Canonical: https://shop.example/.well-known/security.txt\n"
    );
    // RFC 9116, section 2.5.5: in the future, and by less than a year.
    for days in [1, 100, 10_000] {
        service.clock.set(NOW.plus(Duration::from_secs(days * 86_400)));
        let text = fetch().await.body;
        let expires = text.lines().find_map(|line| line.strip_prefix("Expires: ")).unwrap();
        let in_days = |days: u64| Timestamp::plus(service.clock.now(), Duration::from_secs(days * 86_400)).to_string();
        assert!(*expires > *in_days(30) && *expires < *in_days(365), "{text}");
    }
}

#[tokio::test]
async fn security_txt_without_tls_has_no_canonical_address() {
    let service = with_contacts("http://shop.example/v1").await;
    assert!(!service.request("GET", SECURITY).send().await.body.contains("Canonical"));
}

#[tokio::test]
async fn security_txt_without_a_contact_is_not_found() {
    let service = Service::start().await;
    assert_eq!(service.request("GET", SECURITY).send().await.code(), "not_found");
}

async fn with_contacts(base_url: &str) -> Service {
    let security_contacts = vec!["mailto:security@shop.example".to_owned(), "https://shop.example/report".to_owned()];
    Service::start_with(Setup { base_url: BaseUrl::parse(base_url).ok(), security_contacts, ..Setup::default() }).await
}
