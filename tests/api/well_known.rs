//! Documents at well-known addresses of the store listener.

use std::time::Duration;

use petstore::api::BaseUrl;
use petstore::domain::Timestamp;

use crate::service::{NOW, Service, Setup};

const SECURITY: &str = "/.well-known/security.txt";

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
async fn security_txt_needs_a_contact_and_its_canonical_address_tls() {
    let plain = with_contacts("http://shop.example/v1").await;
    assert!(!plain.request("GET", SECURITY).send().await.body.contains("Canonical"));
    let without = Service::start().await;
    for method in ["GET", "POST"] {
        assert_eq!(without.request(method, SECURITY).send().await.code(), "not_found");
    }
    assert_eq!(plain.request("POST", SECURITY).send().await.code(), "method_not_allowed");
}

async fn with_contacts(base_url: &str) -> Service {
    let security_contacts = vec!["mailto:security@shop.example".to_owned(), "https://shop.example/report".to_owned()];
    Service::start_with(Setup { base_url: BaseUrl::parse(base_url).ok(), security_contacts, ..Setup::default() }).await
}
