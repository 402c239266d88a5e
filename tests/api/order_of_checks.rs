//! A request with several errors is rejected for the first of them: route, method, credential, size and media type,
//! syntax and values, the operation.

use petstore::api::Operation;
use testkit::{Request, read_response, soon};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::{HELLO, LARGEST, REX, Service};

const TOO_LARGE: usize = LARGEST + 1;

#[tokio::test]
async fn route_before_method_and_everything_else() {
    let service = Service::start().await;
    for (address, path) in [(service.store_address, "/v1/nothing?x=1"), (service.messages_address, "/v1/pets?x=1")] {
        for method in ["GET", "POST", "DELETE", "OPTIONS", "BREW"] {
            let request = Request::new(address, method, path).header("content-type", "text/plain").body("x");
            assert_eq!(request.send().await.code(), "not_found", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn method_before_credential_and_everything_else() {
    let service = Service::start().await;
    for operation in Operation::ALL {
        let path = format!("{}?x=1", operation.path());
        for (content_type, length) in [("text/plain", 3), ("application/json", TOO_LARGE)] {
            let request =
                Request::new(service.address_of(operation), "PUT", &path).header("content-type", content_type);
            let answer = request.body(vec![b'x'; length]).send().await;
            assert_eq!(answer.code(), "method_not_allowed", "{path} {content_type}");
        }
    }
}

/// `verification/tests/promises/without_key.rs` adds wrong sizes, media types and syntax.
#[tokio::test]
async fn credential_before_path_parameters_and_queries() {
    let service = Service::start().await;
    for operation in Operation::documented() {
        for (id, query) in [("1", ""), ("99", "?x=1&x=2"), ("abc", "?limit=0"), ("%FF", ""), ("1.5", "")] {
            let request = || service.request_to_query(operation, id, query).json("{");
            let case = format!("{operation:?} {id}{query}");
            assert_eq!(request().send().await.code(), "missing_api_key", "{case}");
            assert_eq!(request().key("wrong").send().await.code(), "invalid_api_key", "{case}");
            assert_ne!(request().key(&service.key).send().await.status(), 401, "{case}");
        }
    }
}

#[tokio::test]
async fn size_and_media_type_before_syntax_values_and_the_operation() {
    let service = Service::start().await;
    for operation in Operation::documented() {
        for (id, query) in [("1", "?limit=0"), ("99", "?x=1"), ("abc", "")] {
            let request = || service.request_to_query(operation, id, query).key(&service.key);
            let too_large = request().json(vec![b'x'; TOO_LARGE]).send().await;
            assert_eq!(too_large.code(), "payload_too_large", "{operation:?} {id}{query}");
            let wrong_type = request().header("content-type", "text/plain").body("{").send().await;
            assert_eq!(wrong_type.code(), "unsupported_media_type", "{operation:?} {id}{query}");
        }
    }
}

#[tokio::test]
async fn syntax_and_values_before_the_operation() {
    let service = Service::start().await;
    let broken = "ALTER TABLE pets RENAME TO no_pets; ALTER TABLE orders RENAME TO no_orders;
                  ALTER TABLE messages RENAME TO no_messages";
    service.database().execute_batch(broken).unwrap();
    for (code, path, body) in [
        ("invalid_value", "/v1/pets?limit=0", None),
        ("unknown_parameter", "/v1/pets/99?x=1", None),
        ("unknown_parameter", "/v1/pets/abc?x=1", None),
        ("invalid_json", "/v1/pets", Some("{")),
        ("missing_field", "/v1/pets", Some("{}")),
        ("unknown_parameter", "/v1/pets?x=1", Some(REX)),
        ("unknown_parameter", "/v1/store/orders/99/approve?x=1", Some("")),
        ("invalid_json", "/v1/store/orders/99/approve", Some("{")),
        // Controls: the operations themselves fail.
        ("internal_error", "/v1/pets", Some(REX)),
        ("internal_error", "/v1/store/orders/99/approve", Some("")),
    ] {
        let answer = match body {
            Some(body) => service.post(path, body).await,
            None => service.get(path).await,
        };
        assert_eq!(answer.code(), code, "{path} {body:?}");
    }
    assert_eq!(service.message("{}").await.code(), "missing_field");
    assert_eq!(service.message(HELLO).await.code(), "internal_error");
}

#[tokio::test]
async fn head_errors_are_sent_before_the_body_is_read() {
    let service = Service::start().await;
    let key = format!("authorization: Bearer {}\r\n", service.key);
    let json = "content-type: application/json\r\n";
    for (head, code) in [
        (format!("POST /v1/pets HTTP/1.1\r\n{key}{json}content-length: {TOO_LARGE}\r\n"), "payload_too_large"),
        (format!("POST /v1/pets HTTP/1.1\r\n{key}{json}content-length: 9223372036854775807\r\n"), "payload_too_large"),
        (format!("GET /v1/pets HTTP/1.1\r\n{key}{json}content-length: {TOO_LARGE}\r\n"), "payload_too_large"),
        (format!("POST /v1/pets HTTP/1.1\r\n{json}content-length: 100\r\n"), "missing_api_key"),
        (format!("POST /v1/pets HTTP/1.1\r\n{json}transfer-encoding: chunked\r\n"), "missing_api_key"),
        (format!("POST /v1/pets HTTP/1.1\r\n{key}content-length: 100\r\n"), "unsupported_media_type"),
        (format!("POST /v1/nothing HTTP/1.1\r\n{key}{json}content-length: 100\r\n"), "not_found"),
        (format!("PUT /v1/pets HTTP/1.1\r\n{key}{json}content-length: 100\r\n"), "method_not_allowed"),
    ] {
        for expect in ["", "expect: 100-continue\r\n"] {
            let mut stream = TcpStream::connect(service.store_address).await.unwrap();
            stream.write_all(format!("{head}host: x\r\n{expect}\r\n").as_bytes()).await.unwrap();
            // A 100 would ask for the body.
            let answer = soon(read_response(&mut stream)).await;
            assert_eq!(answer.code(), code, "{head}");
        }
    }
    // A client that announces chunks may send none, unless it waits for permission to send (RFC 9110, section 10.1.1).
    let head = format!("POST /v1/pets HTTP/1.1\r\nhost: x\r\n{key}transfer-encoding: chunked\r\n");
    for rest in ["expect: 100-continue\r\n\r\n", "\r\n1\r\n{"] {
        let mut stream = TcpStream::connect(service.store_address).await.unwrap();
        stream.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
        assert_eq!(soon(read_response(&mut stream)).await.code(), "unsupported_media_type", "{rest}");
    }
}

#[tokio::test]
async fn expected_body_gets_100_continue() {
    let service = Service::start().await;
    let head = format!(
        "POST /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        service.key,
        REX.len()
    );
    let mut stream = TcpStream::connect(service.store_address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 100);
    stream.write_all(REX.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 201);
}
