//! Errors: one shape on every path, also from the HTTP layer.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use petstore::config::Listener;
use petstore::http::ListenerService;
use testkit::{Request, Response, raw, soon};
use tokio::task::JoinSet;

use crate::service::{Service, Setup};

const LARGEST: usize = 64 * 1024;

#[tokio::test]
async fn errors_have_code_message_and_status() {
    let service = Service::start().await;
    expect![[r#"
        404 Not Found
        content-type: application/json

        {"code":"not_found","message":"There is nothing at this path.","status":404}
    "#]]
    .assert_eq(&service.get("/v1/nothing").await.shown());
    expect![[r#"
        405 Method Not Allowed
        content-type: application/json
        allow: GET,HEAD,POST

        {"code":"method_not_allowed","message":"This path does not have this method; `Allow` names those it has.","status":405}
    "#]]
    .assert_eq(&service.request("PUT", "/v1/pets").send().await.shown());
    expect![[r#"
        401 Unauthorized
        content-type: application/json
        www-authenticate: Bearer realm="petstore"

        {"code":"missing_api_key","message":"An API key is needed: send it as `Authorization: Bearer <API_KEY>`.","status":401}
    "#]]
    .assert_eq(&service.request("GET", "/v1/pets").send().await.shown());
    expect![[r#"
        400 Bad Request
        content-type: application/json

        {"code":"invalid_value","message":"`limit` is 0; 1 to 100 are allowed.","status":400}
    "#]]
    .assert_eq(&service.get("/v1/pets?limit=0").await.shown());
    expect![[r#"
        413 Payload Too Large
        content-type: application/json
        connection: close

        {"code":"payload_too_large","message":"The body is larger than 64 KiB.","status":413}
    "#]]
    .assert_eq(&service.post("/v1/pets", &" ".repeat(LARGEST + 1)).await.shown());
    expect![[r#"
        415 Unsupported Media Type
        content-type: application/json
        connection: close

        {"code":"unsupported_media_type","message":"`Content-Type` must be `application/json`, in UTF-8.","status":415}
    "#]]
    .assert_eq(&service.request("POST", "/v1/pets").key(&service.key).body("{}").send().await.shown());
}

#[tokio::test]
async fn unknown_path_is_not_found() {
    let service = Service::start().await;
    for address in [service.store_address, service.messages_address, service.ops_address] {
        for path in ["/", "/v1", "/v2/pets", "/v1/pet", "/favicon.ico", "/v1/pets/1/owner", "/%00", "/../etc/passwd"] {
            if path == "/" && address == service.store_address {
                continue; // That is where people arrive.
            }
            let answer = Request::new(address, "GET", path).send().await;
            assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{address} {path}");
        }
    }
    assert_eq!(service.request("GET", "/docs/nothing.js").send().await.code(), "not_found");
}

#[tokio::test]
async fn unknown_method_is_405_with_allow() {
    let service = Service::start().await;
    for (address, path, allowed) in [
        (service.store_address, "/v1/pets", &["get", "head", "post"][..]),
        (service.store_address, "/v1/pets/1", &["get", "head"]),
        (service.store_address, "/openapi.json", &["get", "head"]),
        (service.store_address, "/livez", &["get", "head"]),
        (service.messages_address, "/v1/messages", &["post"]),
        (service.ops_address, "/readyz", &["get", "head"]),
    ] {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get"] {
            if allowed.contains(&method.to_lowercase().as_str()) && method != "get" {
                continue;
            }
            let answer = Request::new(address, method, path).key(&service.key).send().await;
            assert_eq!(answer.status(), 405, "{method} {path}");
            assert_eq!(answer.list("allow"), allowed, "{method} {path}");
            if method == "HEAD" {
                assert_eq!(answer.body, "");
            } else {
                assert_eq!(answer.code(), "method_not_allowed", "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn head_has_no_body_even_for_errors() {
    let service = Service::start().await;
    let cases = [
        (service.store_address, "/v1/nothing", 404),
        (service.messages_address, "/v1/messages", 405),
        (service.store_address, "/v1/pets", 401),
        (service.store_address, "/v1/pets/1", 401),
    ];
    for (address, path, status) in cases {
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\nconnection: close\r\n\r\n");
        let answer = raw(address, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(answer.contains("x-request-id: mine\r\n"), "{answer}");
        assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn body_is_limited_to_64_kib() {
    let service = Service::start().await;
    let whole = r#"{"name":"Rex","categoryId":3,"message":"Hello"}"#;
    let body = |size: usize| whole.to_owned() + &" ".repeat(size - whole.len());
    for (size, status) in [(LARGEST - 1, 201), (LARGEST, 201), (LARGEST + 1, 413), (LARGEST * 3, 413)] {
        let declared = service.post("/v1/pets", &body(size)).await;
        assert_eq!(declared.status(), status, "{size}, declared");
        let chunked = service.request("POST", "/v1/pets").key(&service.key).header("transfer-encoding", "chunked");
        let chunked = chunked.json(body(size)).send().await;
        assert_eq!(chunked.status(), status, "{size}, in chunks");
        let message = service.message(&body(size)).await;
        assert_eq!(message.status() == 413, status == 413, "{size}, a message");
        for refused in [declared, chunked, message].iter().filter(|answer| answer.status() == 413) {
            assert_eq!(refused.code(), "payload_too_large");
            assert_eq!(refused.header("connection"), Some("close"));
        }
    }
}

#[tokio::test]
async fn body_requires_json_content_type() {
    let service = Service::start().await;
    let body = r#"{"name":"Rex","categoryId":3,"message":"Hello"}"#;
    let typed = |request: Request, kind: Option<&str>| {
        let request = request.key(&service.key).body(body);
        match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        }
    };
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json; charset=\"utf-8\"",
        "application/json ; version=1; charset=utf-8",
    ] {
        let answer = typed(service.request("POST", "/v1/pets"), Some(kind)).send().await;
        assert_eq!(answer.status(), 201, "{kind}");
    }
    for kind in [
        None,
        Some(""),
        Some("text/plain"),
        Some("text/json"),
        Some("application/jsonl"),
        Some("application/problem+json"),
        Some("application/x-www-form-urlencoded"),
        Some("application/*"),
        Some("json"),
        Some("application/json, text/plain"),
        Some("application/json; charset=latin1"),
        Some("application/json; charset=utf-16"),
        Some("application/json; charset=utf-8; charset=latin1"),
    ] {
        for request in [service.request("POST", "/v1/pets"), service.message_request()] {
            let answer = typed(request, kind).send().await;
            assert_eq!((answer.status(), answer.code().as_str()), (415, "unsupported_media_type"), "{kind:?}");
        }
    }
    let twice = service.request("POST", "/v1/pets").key(&service.key).header("content-type", "text/plain").json(body);
    assert_eq!(twice.send().await.code(), "unsupported_media_type");
}

#[tokio::test]
async fn compressed_body_is_rejected() {
    let service = Service::start().await;
    let body = r#"{"name":"Rex","categoryId":3,"message":"Hello"}"#;
    for coding in ["gzip", "br", "identity, gzip", "", "x"] {
        for request in [service.request("POST", "/v1/pets"), service.message_request()] {
            let answer = request.key(&service.key).header("content-encoding", coding).json(body).send().await;
            assert_eq!((answer.status(), answer.code().as_str()), (415, "unsupported_media_type"), "{coding:?}");
            assert!(answer.body.contains("Content-Encoding"), "{}", answer.body);
            assert_eq!(answer.header("accept-encoding"), Some("identity"));
        }
    }
    for coding in ["identity", "Identity"] {
        let request = service.request("POST", "/v1/pets").key(&service.key).header("content-encoding", coding);
        assert_eq!(request.json(body).send().await.status(), 201, "{coding}");
    }
    let other_reason = service.request("POST", "/v1/pets").key(&service.key).body(body).send().await;
    assert_eq!((other_reason.status(), other_reason.header("accept-encoding")), (415, None));
}

#[tokio::test]
async fn empty_body_needs_no_content_type() {
    let service = Service::start().await;
    let typed =
        |method: &str| service.request(method, "/v1/pets").key(&service.key).header("content-type", "text/plain");
    assert_eq!(typed("GET").send().await.status(), 200);
    assert_eq!(typed("POST").send().await.code(), "invalid_json");
    assert_eq!(service.request("POST", "/v1/pets").key(&service.key).send().await.code(), "invalid_json");
}

#[tokio::test]
async fn database_error_is_500_without_details() {
    let service = Service::start().await;
    let database = service.database();
    let add = r#"{"name":"Rex","categoryId":3}"#;
    assert_eq!(service.post("/v1/pets", add).await.status(), 201);

    database
        .execute_batch(
            "ALTER TABLE pets RENAME TO pets_elsewhere; ALTER TABLE orders RENAME TO orders_elsewhere;
             ALTER TABLE messages RENAME TO messages_elsewhere",
        )
        .unwrap();
    for request in service.operations() {
        let answer = request.key(&service.key).send().await;
        assert_eq!((answer.status(), answer.code().as_str()), (500, "internal_error"));
        assert_eq!(
            answer.json()["message"],
            "Something went wrong on our side; it is in our log under this request's id."
        );
        assert_eq!(answer.header("retry-after"), None);
    }

    database
        .execute_batch(
            "ALTER TABLE pets_elsewhere RENAME TO pets; ALTER TABLE orders_elsewhere RENAME TO orders;
             ALTER TABLE messages_elsewhere RENAME TO messages",
        )
        .unwrap();
    for request in service.operations() {
        assert!(
            request.key(&service.key).send().await.head.status.is_success(),
            "it works again once the cause is gone"
        );
    }
}

#[tokio::test]
async fn panic_is_500() {
    let routes = axum::Router::new().route("/", axum::routing::get(async || -> () { panic!("the secret cause") }));
    let request = http::Request::builder().uri("/").header("host", "x").header("x-request-id", "mine");
    let request = request.body(axum::body::Body::empty());
    let (service, request) = (Service::start().await, request.unwrap());
    let door = ListenerService::new(Listener::Store, &service.api).with_pages(routes);
    let response = door.answer(request, Ipv4Addr::LOCALHOST.into()).await;
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((body["code"].as_str(), body["status"].as_u64()), (Some("internal_error"), Some(500)));
    assert!(!body.to_string().contains("secret"), "{body}");
}

#[tokio::test]
async fn held_lock_blocks_writes_but_not_reads() {
    let setup = Setup { busy_timeout: Duration::from_millis(100), ..Setup::default() };
    let service = Service::start_with(setup).await;
    let database = service.database();
    let add = r#"{"name":"Rex","categoryId":3}"#;
    service.post("/v1/pets", add).await;

    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    for answer in [service.post("/v1/pets", add).await, service.message(r#"{"message":"Hello"}"#).await] {
        assert_unavailable(&answer);
        assert_eq!(answer.json()["message"], "The service can't take this request now. Try again later.");
    }
    assert_eq!(service.get("/v1/pets").await.json().as_array().unwrap().len(), 1);
    assert_eq!(service.get("/v1/pets/1").await.status(), 200);

    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(service.post("/v1/pets", add).await.json()["id"], 2, "what was refused left nothing behind");
}

#[tokio::test]
async fn full_queue_rejects_immediately_and_keeps_its_writes() {
    let setup = Setup { queue: 2, busy_timeout: Duration::from_secs(60), ..Setup::default() };
    let service = Arc::new(Service::start_with(setup).await);
    let database = service.database();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();

    let mut adding = JoinSet::new();
    for _ in 0..40 {
        let service = Arc::clone(&service);
        adding.spawn(async move { service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await });
    }
    // While the lock is held, what was taken waits: only a refusal can come.
    let refused = soon(adding.join_next()).await.unwrap().unwrap();
    assert_unavailable(&refused);
    assert_eq!(service.get("/v1/pets").await.status(), 200);
    database.execute_batch("ROLLBACK").unwrap();

    let mut added = Vec::new();
    for answer in soon(adding.join_all()).await {
        match answer.status() {
            201 => added.push(answer.json()["id"].as_i64().unwrap()),
            _ => assert_unavailable(&answer),
        }
    }
    added.sort_unstable();
    assert!(!added.is_empty());
    let listed = service.get("/v1/pets?limit=100").await.json();
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|pet| pet["id"].as_i64().unwrap()).collect();
    assert_eq!(listed, added);
}

fn assert_unavailable(answer: &Response) {
    assert_eq!((answer.status(), answer.code().as_str()), (503, "unavailable"));
    let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds >= 1);
}
