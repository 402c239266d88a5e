//! `Cache-Control` and `X-Content-Type-Options` of API responses.

use testkit::{Request, Response};

use crate::service::{LARGEST, Service};

#[tokio::test]
async fn responses_of_operations_forbid_storing_and_sniffing() {
    let service = Service::with_pets(2).await;
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

pub fn assert_not_stored(response: &Response) {
    let shown = response.shown();
    assert_eq!(response.header("cache-control"), Some("no-store"), "{shown}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{shown}");
}
