//! The API reference's pages and files.

use crate::service::Service;

#[tokio::test]
async fn reference_loads_nothing_from_other_hosts() {
    let service = Service::start().await;

    let page = service.request("GET", "/docs").send().await;

    assert_eq!((page.status(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(policy.contains(&format!("connect-src 'self' http://{}", service.store_address)), "{policy}");
    let sources =
        page.body.split(['"', ' ']).filter(|part| part.starts_with("http://") || part.starts_with("https://"));
    for source in sources {
        assert!(source.starts_with(&format!("http://{}", service.store_address)), "{source}");
    }
    for file in page.body.split('"').filter(|part| part.starts_with("docs/")) {
        assert_eq!(service.request("HEAD", &format!("/{file}")).send().await.status(), 200, "{file}");
    }
}

#[tokio::test]
async fn unchanged_file_is_304() {
    let service = Service::start().await;
    let script = service.request("GET", "/docs/petstore.js").send().await;
    let tag = script.header("etag").unwrap();

    let again = service.request("GET", "/docs/petstore.js").header("if-none-match", tag).send().await;
    assert_eq!((again.status(), again.body.as_str()), (304, ""));

    let other = service.request("GET", "/docs/petstore.js").header("if-none-match", "\"other\"").send().await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn page_opened_by_another_name_redirects_to_the_api_host() {
    let service = Service::start().await;
    let port = service.store_address.port();
    let open = async |host: String| {
        let request = format!("GET /docs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        testkit::raw(service.store_address, request.as_bytes()).await
    };

    let by_name = open(format!("localhost:{port}")).await;
    assert!(by_name.starts_with("HTTP/1.1 307"), "{by_name}");
    assert!(by_name.contains(&format!("location: http://127.0.0.1:{port}/docs\r\n")), "{by_name}");
    assert!(open(format!("127.0.0.1:{port}")).await.starts_with("HTTP/1.1 200"));
    assert!(open("localhost:1".to_owned()).await.starts_with("HTTP/1.1 200"), "another port is another service");
}
