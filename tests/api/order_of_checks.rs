//! A request that is wrong twice gets the first answer: route, method, credential, size and media type, syntax and
//! values, the operation.

use crate::service::Service;
use petstore::http::Operation;
use testkit::{Request, read_response, soon};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const TOO_MUCH: usize = 64 * 1024 + 1;

#[tokio::test]
async fn route_before_method_and_everything_else() {
    let service = Service::start().await;
    for (address, path) in [(service.store_address, "/v1/nothing?x=1"), (service.messages_address, "/v1/pets?x=1")] {
        for method in ["GET", "POST", "DELETE", "OPTIONS", "BREW"] {
            let answer =
                Request::new(address, method, path).header("content-type", "text/plain").body("x").send().await;
            assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn method_before_credential_and_everything_else() {
    let service = Service::start().await;
    for operation in Operation::ALL {
        let path = format!("{}?x=1", operation.path());
        for (kind, length) in [("text/plain", 3), ("application/json", TOO_MUCH)] {
            let request = Request::new(service.address_of(operation), "PUT", &path)
                .header("content-type", kind)
                .body(vec![b'x'; length]);
            assert_eq!(request.send().await.code(), "method_not_allowed", "{path} {kind}");
        }
    }
}

#[tokio::test]
async fn credential_before_size_type_and_values() {
    let service = Service::start().await;
    let requests = Operation::documented().flat_map(|operation| ["1", "99", "abc"].map(|id| (operation, id)));
    for (operation, id) in requests {
        let wrong = [
            ("", "text/plain", "x".to_owned()),
            ("", "application/json", "x".repeat(TOO_MUCH)),
            ("?x=1&x=2", "application/json", "{".to_owned()),
            ("?limit=0", "application/json", "{}".to_owned()),
        ];
        for (query, kind, body) in wrong {
            let request = || {
                let request = service.request_to_query(operation, id, query);
                request.header("content-type", kind).body(body.clone())
            };
            assert_eq!(request().send().await.code(), "missing_api_key", "{operation:?} {id}{query} {kind}");
            assert_eq!(
                request().key("wrong").send().await.code(),
                "invalid_api_key",
                "{operation:?} {id}{query} {kind}"
            );
            assert_ne!(request().key(&service.key).send().await.status(), 401, "{operation:?} {id}{query} {kind}");
        }
    }
}

#[tokio::test]
async fn template_matches_any_parameter_value() {
    let service = Service::start().await;
    for id in ["abc", "99", "%FF", "1.5"] {
        let path = format!("/v1/pets/{id}");
        assert_eq!(service.request("GET", &path).send().await.code(), "missing_api_key", "{id}");
        assert_eq!(service.get(&path).await.code(), "not_found", "{id}");
    }
}

#[tokio::test]
async fn size_and_media_type_before_syntax_values_and_the_operation() {
    let service = Service::start().await;
    for operation in Operation::documented() {
        for (id, query) in [("1", "?limit=0"), ("99", "?x=1"), ("abc", "")] {
            let request = || service.request_to_query(operation, id, query).key(&service.key);
            let too_large = request().json(vec![b'x'; TOO_MUCH]).send().await;
            assert_eq!(too_large.code(), "payload_too_large", "{operation:?} {id}{query}");
            let wrong_type = request().header("content-type", "text/plain").body("{").send().await;
            assert_eq!(wrong_type.code(), "unsupported_media_type", "{operation:?} {id}{query}");
        }
    }
}

#[tokio::test]
async fn syntax_and_values_before_the_operation() {
    let service = Service::start().await;
    assert_eq!(service.get("/v1/pets/99?x=1").await.code(), "unknown_parameter");
    assert_eq!(service.get("/v1/pets/abc?x=1").await.code(), "unknown_parameter");

    let broken = "ALTER TABLE pets RENAME TO elsewhere; ALTER TABLE messages RENAME TO nowhere";
    service.database().execute_batch(broken).unwrap();
    assert_eq!(service.get("/v1/pets?limit=0").await.code(), "invalid_value");
    assert_eq!(service.post("/v1/pets", "{").await.code(), "invalid_json");
    assert_eq!(service.post("/v1/pets", "{}").await.code(), "missing_field");
    assert_eq!(service.post("/v1/pets?x=1", r#"{"name":"Rex","categoryId":3}"#).await.code(), "unknown_parameter");
    assert_eq!(service.message("{}").await.code(), "missing_field");
    assert_eq!(service.message(r#"{"message":"Hello"}"#).await.code(), "internal_error", "the operation would fail");
}

#[tokio::test]
async fn head_errors_are_sent_before_the_body_is_read() {
    let service = Service::start().await;
    let key = format!("authorization: Bearer {}\r\n", service.key);
    let json = "content-type: application/json\r\n";
    let cases = [
        (format!("POST /v1/pets HTTP/1.1\r\n{key}{json}content-length: {TOO_MUCH}\r\n"), "payload_too_large"),
        (format!("POST /v1/pets HTTP/1.1\r\n{key}{json}content-length: 9223372036854775807\r\n"), "payload_too_large"),
        (format!("GET /v1/pets HTTP/1.1\r\n{key}{json}content-length: {TOO_MUCH}\r\n"), "payload_too_large"),
        (format!("POST /v1/pets HTTP/1.1\r\n{json}content-length: 100\r\n"), "missing_api_key"),
        (format!("POST /v1/pets HTTP/1.1\r\n{json}transfer-encoding: chunked\r\n"), "missing_api_key"),
        (format!("POST /v1/pets HTTP/1.1\r\n{key}content-length: 100\r\n"), "unsupported_media_type"),
        (format!("POST /v1/pets HTTP/1.1\r\n{key}transfer-encoding: chunked\r\n"), "unsupported_media_type"),
        (format!("POST /v1/nothing HTTP/1.1\r\n{key}{json}content-length: 100\r\n"), "not_found"),
        (format!("PUT /v1/pets HTTP/1.1\r\n{key}{json}content-length: 100\r\n"), "method_not_allowed"),
    ];
    for (head, code) in cases {
        for expect in ["", "expect: 100-continue\r\n"] {
            let mut stream = TcpStream::connect(service.store_address).await.unwrap();
            stream.write_all(format!("{head}host: x\r\n{expect}\r\n").as_bytes()).await.unwrap();
            // With `Expect`, an answer that began with 100 would say that the body is wanted.
            let answer = soon(read_response(&mut stream)).await;
            assert_eq!(answer.code(), code, "{head}");
        }
    }
}

#[tokio::test]
async fn expected_body_gets_100_continue() {
    let service = Service::start().await;
    let body = r#"{"name":"Rex","categoryId":3}"#;
    let head = format!(
        "POST /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        service.key,
        body.len()
    );
    let mut stream = TcpStream::connect(service.store_address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 100);
    stream.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 201);
}
