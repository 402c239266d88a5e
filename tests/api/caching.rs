//! `Cache-Control` and `X-Content-Type-Options` of API responses.

use testkit::{Request, Response, raw};

use crate::service::{LARGEST, Service, Setup};

#[tokio::test]
async fn responses_of_operations_forbid_storing_and_sniffing() {
    let service = Service::start().await;
    service.create_pets(2).await;
    let mut requests = service.operations();
    requests.extend(service.operations().into_iter().map(|request| request.key(&service.key)));
    for address in service.addresses() {
        requests.extend(["/livez", "/readyz", "/v1/nothing"].map(|path| Request::new(address, "GET", path)));
        requests.push(Request::new(address, "DELETE", "/livez"));
        requests.push(Request::new(address, "HEAD", "/livez"));
    }
    requests.push(Request::new(service.ops_address, "GET", "/metrics"));
    requests.push(service.request("HEAD", "/v1/pets").key(&service.key));
    requests.push(service.request("GET", "/v1/pets?limit=0").key(&service.key));
    requests.push(service.request("POST", "/v1/pets").key(&service.key).json(" ".repeat(LARGEST + 1)));
    requests.push(service.request("GET", "/docs/nothing"));
    for request in requests {
        assert_not_stored(&request.send().await);
    }
}

#[tokio::test]
async fn rejected_connection_gets_the_same_headers() {
    let mut setup = Setup::default();
    setup.limits.head = std::time::Duration::from_millis(100);
    let service = Service::start_with(setup).await;
    let response = raw(service.store_address, b"GET /livez HTTP/1.1\r\n").await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("\r\ncache-control: no-store\r\n"), "{response}");
    assert!(response.contains("\r\nx-content-type-options: nosniff\r\n"), "{response}");
}

fn assert_not_stored(response: &Response) {
    let shown = response.shown();
    assert_eq!(response.header("cache-control"), Some("no-store"), "{shown}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{shown}");
}
