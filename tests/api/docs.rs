//! The API reference's pages and files.

use petstore::api::BaseUrl;
use testkit::Request;

use crate::service::{Service, Setup};
use crate::transport::Transport;

#[tokio::test]
async fn reference_loads_nothing_from_other_hosts() {
    let service = Service::start().await;
    let own = format!("http://{}", service.store_address);

    let page = service.request("GET", "/docs").send().await;

    assert_eq!((page.status(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self' {own} http://{}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        service.messages_address
    );
    assert_eq!(page.header("content-security-policy"), Some(policy.as_str()));
    let parts = || page.body.split(['"', ' ']);
    for source in parts().filter(|part| part.starts_with("http://") || part.starts_with("https://")) {
        assert!(source.starts_with(&own), "{source}");
    }
    for file in parts().filter_map(|part| part.strip_prefix("./docs/")) {
        let path = format!("/docs/{file}");
        assert_eq!(service.request("HEAD", &path).send().await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn page_opened_by_another_name_redirects_to_the_api_host() {
    let service = Service::start().await;
    let port = service.store_address.port();
    let own = |path: &str| Some(format!("http://127.0.0.1:{port}{path}"));
    for (host, path, location) in [
        (format!("localhost:{port}"), "/docs", own("/docs")),
        (format!("localhost:{port}"), "/sign-in?x=y", own("/sign-in?x=y")),
        (format!("127.0.0.1:{port}"), "/docs", None),
        // Another port is another service.
        ("localhost:1".to_owned(), "/docs", None),
    ] {
        let page = service.request("GET", path).host(&host).send().await;
        assert_eq!(page.status(), if location.is_some() { 307 } else { 200 }, "{host} {path}");
        assert_eq!(page.header("location"), location.as_deref(), "{host} {path}");
    }
    let six =
        Service::start_with(Setup { base_url: BaseUrl::parse("http://[::1]:1/v1").ok(), ..Setup::default() }).await;
    let page = six.request("GET", "/docs").host("localhost:1").send().await;
    assert_eq!((page.status(), page.header("location")), (307, Some("http://[::1]:1/docs")));
}

/// A certificate may name only `localhost`, so there is no redirect.
#[tokio::test]
async fn reference_opened_at_localhost_with_tls_calls_localhost() {
    let transport = Transport::tls(|_| {}).await;
    let service = &transport.service;
    let (store, messages) = (service.store_address.port(), service.messages_address.port());
    let host = format!("localhost:{store}");
    let get = async |path: &str| transport.send(service.request("GET", path).host(&host)).await;
    let document = get("/openapi.json").await.body;
    for url in [format!("\"https://{host}/v1\""), format!("\"https://localhost:{messages}/v1\"")] {
        assert!(document.contains(&url), "{url}");
    }
    let reference = get("/docs").await;
    let policy = format!("connect-src 'self' https://{host} https://localhost:{messages};");
    assert!(reference.status() == 200 && reference.shown().contains(&policy), "{}", reference.shown());

    let origin = format!("https://{host}");
    for (host, is_allowed) in [("localhost", true), ("evil.test", false)] {
        let preflight = Request::new(service.messages_address, "OPTIONS", "/v1/messages");
        let preflight = preflight.host(&format!("{host}:{messages}")).header("origin", &origin);
        let preflight = preflight.header("access-control-request-method", "POST");
        let answer = preflight.send_over(transport.connect_to(service.messages_address).await).await;
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, is_allowed.then_some(&*origin), "{host}");
    }
}
