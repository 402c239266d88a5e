//! A request with several errors is rejected for the first of them: route, method, credential, size and media type,
//! syntax and values, the operation. `errors.rs` tells that the route comes first.

use petstore::api::Operation;
use testkit::{Request, read_response, soon};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::{HELLO, LARGEST, REX, Service};

const TOO_LARGE: usize = LARGEST + 1;

#[tokio::test]
async fn method_before_credential_before_size_and_type_before_the_rest() {
    let service = Service::start().await;
    let too_large = |request: Request| request.json(vec![b'x'; TOO_LARGE]).send();
    let wrong_type = |request: Request| request.header("content-type", "text/plain").body("{").send();
    for operation in Operation::documented() {
        for (id, query) in [("1", ""), ("99", "?x=1&x=2"), ("abc", "?limit=0"), ("%FF", ""), ("1.5", "")] {
            let case = format!("{operation:?} {id}{query}");
            let request = || service.request_to_query(operation, id, query);
            let path = format!("{}?x=1", operation.path());
            let put = || Request::new(service.address_of(operation), "PUT", &path);
            assert_eq!(too_large(put()).await.code(), "method_not_allowed", "{case}");
            assert_eq!(wrong_type(put()).await.code(), "method_not_allowed", "{case}");
            assert_eq!(request().json("{").send().await.code(), "missing_api_key", "{case}");
            assert_eq!(request().key("wrong").json("{").send().await.code(), "invalid_api_key", "{case}");
            assert_eq!(too_large(request().key(&service.key)).await.code(), "payload_too_large", "{case}");
            assert_eq!(wrong_type(request().key(&service.key)).await.code(), "unsupported_media_type", "{case}");
        }
    }
}

#[tokio::test]
async fn syntax_and_values_before_the_operation() {
    let service = Service::start().await;
    for table in ["pets", "orders", "messages"] {
        service.sql(&format!("ALTER TABLE {table} RENAME TO no_{table}"));
    }
    for (code, method, path, body) in [
        ("invalid_value", "GET", "/v1/pets?limit=0", ""),
        ("unknown_parameter", "GET", "/v1/pets/99?x=1", ""),
        ("unknown_parameter", "GET", "/v1/pets/abc?x=1", ""),
        ("invalid_json", "POST", "/v1/pets", "{"),
        ("missing_field", "POST", "/v1/pets", "{}"),
        ("unknown_parameter", "POST", "/v1/pets?x=1", REX),
        ("unknown_parameter", "POST", "/v1/store/orders/99/approve?x=1", ""),
        ("invalid_json", "POST", "/v1/store/orders/99/approve", "{"),
        // Controls: the operations themselves fail.
        ("internal_error", "POST", "/v1/pets", REX),
        ("internal_error", "POST", "/v1/store/orders/99/approve", ""),
    ] {
        assert_eq!(service.call(method, path).json(body).send().await.code(), code, "{path} {body:?}");
    }
    assert_eq!(service.message("{}").await.code(), "missing_field");
    assert_eq!(service.message(HELLO).await.code(), "internal_error");
}

#[tokio::test]
async fn head_errors_are_sent_before_the_body_is_read() {
    let service = Service::start().await;
    let key = format!("authorization: Bearer {}\r\n", service.key);
    let json = "content-type: application/json\r\n";
    // A client that announces chunks may send none, unless it waits for permission to send (RFC 9110, section 10.1.1).
    let (waiting, chunk) = ("expect: 100-continue\r\n\r\n", "\r\n1\r\n{");
    for (line, headers, rests, code) in [
        ("POST /v1/pets", format!("{key}{json}content-length: {TOO_LARGE}"), ["\r\n", waiting], "payload_too_large"),
        ("POST /v1/pets", format!("{key}{json}content-length: {}", i64::MAX), ["\r\n", waiting], "payload_too_large"),
        ("GET /v1/pets", format!("{key}{json}content-length: {TOO_LARGE}"), ["\r\n", waiting], "payload_too_large"),
        ("POST /v1/pets", format!("{json}content-length: 100"), ["\r\n", waiting], "missing_api_key"),
        ("POST /v1/pets", format!("{json}transfer-encoding: chunked"), ["\r\n", waiting], "missing_api_key"),
        ("POST /v1/pets", format!("{key}content-length: 100"), ["\r\n", waiting], "unsupported_media_type"),
        ("POST /v1/pets", format!("{key}transfer-encoding: chunked"), [chunk, waiting], "unsupported_media_type"),
        ("POST /v1/nothing", format!("{key}{json}content-length: 100"), ["\r\n", waiting], "not_found"),
        ("PUT /v1/pets", format!("{key}{json}content-length: 100"), ["\r\n", waiting], "method_not_allowed"),
    ] {
        for rest in rests {
            let mut stream = TcpStream::connect(service.store_address).await.unwrap();
            let head = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n{rest}");
            stream.write_all(head.as_bytes()).await.unwrap();
            // A 100 would ask for the body.
            assert_eq!(soon(read_response(&mut stream)).await.code(), code, "{head}");
        }
    }
}
