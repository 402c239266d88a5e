//! The API reference's pages and files.

use crate::service::Service;

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
}
