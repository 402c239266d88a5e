//! Errors have one shape on every path, including those of the HTTP layer.
//!
//! `tests/contract` compares each error of each operation with the example in the document.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use expect_test::expect;
use petstore::api::{Listener, ListenerService, Operation};
use testkit::postgres::{OpenTransaction, sessions};
use testkit::{Request, raw, until};

use crate::service::{HELLO, LARGEST, REX, Service, Setup};

/// A body that creates an animal and sends a message.
const BOTH: &str = r#"{"name":"Rex","categoryId":3,"message":"Hello"}"#;

/// The account is only needed for its list of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_path_does_not_wait_for_the_database() {
    let url = testkit::postgres::database();
    let service = Service::start_at(&url).await;
    let (_, key) = service.another_key(None).await;
    let lock = OpenTransaction::begin(&url, "LOCK TABLE api_keys");

    // The service waits for the look-up for 100 ms, so a late one may not have begun.
    until(async || {
        let missing = service.request("GET", "/v1/nothing").key(&key).send().await;
        assert_eq!(missing.status(), 404);
        sessions(&url, "wait_event_type = 'Lock' AND query LIKE '%api_keys WHERE hash%'") > 0
    })
    .await;
    lock.release();
}

#[tokio::test]
async fn unknown_path_is_not_found() {
    let service = Service::start().await;
    expect![[r#"
        404 Not Found

        {"code":"not_found","message":"This path does not exist.","status":404}
    "#]]
    .assert_eq(&service.get("/v1/nothing").await.shown());
    let nowhere = ["/v1", "/v2/pets", "/v1/pet", "/favicon.ico", "/v1/pets/1/owner", "/%00", "/../etc/passwd"];
    let elsewhere =
        |address: &SocketAddr| if *address == service.store_address { "/v1/messages" } else { "/v1/pets?x=1" };
    for address in service.addresses() {
        for path in nowhere.into_iter().chain([elsewhere(&address)]) {
            // The route comes before the method and everything else.
            for method in ["GET", "POST", "DELETE", "OPTIONS", "BREW"] {
                let request = Request::new(address, method, path).header("content-type", "text/plain").body("x");
                assert_eq!(request.send().await.code(), "not_found", "{address} {method} {path}");
            }
        }
    }
    assert_eq!(service.request("GET", "/docs/nothing.js").send().await.code(), "not_found");
}

#[tokio::test]
async fn unknown_method_is_405_with_allow() {
    let security_contacts = vec!["mailto:security@shop.example".to_owned()];
    let service = Service::start_with(Setup { security_contacts, ..Setup::default() }).await;
    expect![[r#"
        405 Method Not Allowed
        allow: GET,HEAD,POST

        {"code":"method_not_allowed","message":"This path does not support this method. `Allow` lists those it supports.","status":405}
    "#]]
    .assert_eq(&service.request("PUT", "/v1/pets").send().await.shown());
    for operation in Operation::ALL {
        let at_the_path = Operation::ALL.iter().filter(|other| other.path() == operation.path());
        let mut allowed: Vec<_> = at_the_path.flat_map(|other| other.methods()).map(http::Method::as_str).collect();
        allowed.sort_unstable();
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get"] {
            if allowed.contains(&method) {
                continue;
            }
            let path = operation.path_of(Some(1));
            let answer = Request::new(service.address_of(operation), method, &path).key(&service.key).send().await;
            assert_eq!(answer.code(), "method_not_allowed", "{method} {path}");
            assert_eq!(answer.list("allow").join(" "), allowed.join(" ").to_lowercase(), "{path}");
        }
    }
}

#[tokio::test]
async fn head_has_no_body_even_for_errors() {
    let service = Service::start().await;
    for (address, path, status) in [
        (service.store_address, "/v1/nothing", 404),
        (service.store_address, "/v1/store/orders/1/approve", 405),
        (service.messages_address, "/v1/messages", 401),
        (service.store_address, "/v1/pets", 401),
        (service.store_address, "/v1/pets/1", 401),
    ] {
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\nconnection: close\r\n\r\n");
        let answer = raw(address, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with("\r\n\r\n"), "{answer}");
        for header in ["x-request-id: mine\r\n", "content-type: application/json\r\n"] {
            assert!(answer.contains(header), "{answer}");
        }
    }
}

#[tokio::test]
async fn body_is_limited_to_64_kib() {
    let service = Service::start().await;
    let body = |size: usize| BOTH.to_owned() + &" ".repeat(size - BOTH.len());
    for (size, is_accepted) in [(LARGEST - 1, true), (LARGEST, true), (LARGEST + 1, false), (LARGEST * 3, false)] {
        let create = || service.request("POST", "/v1/pets");
        for request in [create(), create().header("transfer-encoding", "chunked"), service.message_request()] {
            let answer = request.key(&service.key).json(body(size)).send().await;
            assert_eq!(answer.head.status.is_success(), is_accepted, "{size}");
            if !is_accepted {
                assert_eq!((answer.code().as_str(), answer.header("connection")), ("payload_too_large", Some("close")));
            }
        }
    }
}

#[tokio::test]
async fn body_requires_json_content_type() {
    let service = Service::start().await;
    let create = || service.call("POST", "/v1/pets").body(BOTH);
    let message = || service.message_request().key(&service.key).body(BOTH);
    for accepted in ["Application/JSON", "application/json ; version=1; charset=\"utf-8\""] {
        for request in [create(), message()] {
            assert!(request.header("content-type", accepted).send().await.head.status.is_success(), "{accepted}");
        }
    }
    let missing_or_twice = [create(), create().header("content-type", "text/plain").json(BOTH)];
    let refused = ["", "text/plain", "json", "application/*", "application/jsonl", "application/json, text/plain"];
    let charsets = ["utf-16", "utf-8; charset=latin1"].map(|charset| format!("application/json; charset={charset}"));
    let refused = refused.into_iter().chain(charsets.iter().map(String::as_str));
    let refused =
        refused.flat_map(|refused| [create(), message()].map(|request| request.header("content-type", refused)));
    for request in refused.chain(missing_or_twice) {
        let answer = request.send().await;
        assert_eq!((answer.code().as_str(), answer.header("connection")), ("unsupported_media_type", Some("close")));
        assert_eq!(answer.header("accept-encoding"), None);
    }
}

#[tokio::test]
async fn compressed_body_is_rejected() {
    let service = Service::start().await;
    let create = |coding| service.call("POST", "/v1/pets").header("content-encoding", coding).json(BOTH);
    for coding in ["gzip", "br", "identity, gzip", "", "x"] {
        let message = service.message_request().key(&service.key).header("content-encoding", coding).json(BOTH);
        for request in [create(coding), message] {
            let answer = request.send().await;
            assert_eq!(answer.code(), "unsupported_media_type", "{coding:?}");
            assert!(answer.body.contains("Content-Encoding"), "{}", answer.body);
            assert_eq!(answer.header("accept-encoding"), Some("identity"));
        }
    }
    for coding in ["identity", "Identity"] {
        assert_eq!(create(coding).send().await.status(), 201, "{coding}");
    }
}

#[tokio::test]
async fn empty_body_needs_no_content_type() {
    let service = Service::start().await;
    let typed = |method: &str| service.call(method, "/v1/pets").header("content-type", "text/plain");
    assert_eq!(typed("GET").send().await.status(), 200);
    let empty = typed("POST").send().await;
    assert_eq!(empty.code(), "invalid_json");
    assert_eq!(empty.json()["message"], "The body is empty: send a JSON object.");
}

#[tokio::test]
async fn database_error_is_500_without_details() {
    let service = Service::start().await;
    let rename = |from: &str, to: &str| {
        for table in ["pets", "orders", "messages"] {
            service.sql(&format!("ALTER TABLE {table}{from} RENAME TO {table}{to}"));
        }
    };
    service.create_pets(1).await;

    rename("", "_elsewhere");
    for request in service.operations() {
        let answer = request.key(&service.key).send().await;
        assert_eq!((answer.code().as_str(), answer.header("retry-after")), ("internal_error", None));
        let message = "An internal error occurred. The service logged it under the id of this request.";
        assert_eq!(answer.json()["message"], message);
    }

    rename("_elsewhere", "");
    for request in service.operations() {
        assert!(request.key(&service.key).send().await.head.status.is_success(), "it works again");
    }
}

#[tokio::test]
async fn panic_is_500() {
    let routes = axum::Router::new().route("/", axum::routing::get(async || -> () { panic!("the secret cause") }));
    let request = http::Request::builder().uri("/").header("host", "x").header("x-request-id", "mine");
    let request = request.body(axum::body::Body::empty());
    let (service, request) = (Service::start().await, request.unwrap());
    let listener = ListenerService::new(Listener::Store, &service.api, Some(routes));
    let response = listener.answer(request, Ipv4Addr::LOCALHOST.into()).await.unwrap();
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
    let database = service.connection();
    service.create_pets(1).await;

    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    for answer in [service.post("/v1/pets", REX).await, service.message(HELLO).await] {
        assert_eq!((answer.code().as_str(), answer.header("retry-after")), ("unavailable", Some("1")));
        assert_eq!(answer.json()["message"], "The service cannot process this request now. Try again later.");
    }
    assert_eq!(service.ids("/v1/pets").await, [1]);
    assert_eq!(service.get("/v1/pets/1").await.status(), 200);

    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(service.post("/v1/pets", REX).await.id(), 2, "the rejected write used no id");
}
