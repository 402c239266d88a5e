//! Connections: their deadlines, their limit, the requests on them, and how they end.

use std::time::{Duration, Instant};

use bounded_http::Stop;
use futures_util::future::join_all;
use petstore::api::parse_new_pet;
use testkit::{Request, Response, TIMEOUT, raw, read_to_end, soon, until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::{REX, Service};
use crate::transport::{LIVE, Stream, Transport};

/// A deadline that passes while the client waits.
const SHORT: Duration = Duration::from_millis(600);

/// A deadline that passes while the client waits. Even on a busy machine, a client finishes a handshake or request before it.
const LONG: Duration = Duration::from_secs(5);

/// Resolution of the coarse clock, which measures the deadlines.
const TICK: Duration = Duration::from_millis(10);

#[tokio::test]
async fn late_head_is_408_and_closes_the_connection() {
    for transport in Transport::each(|limits| limits.head = LONG).await {
        let begun = ["G", "GET /v1/pets HTT", "GET /v1/pets HTTP/1.1\r\nhost: x\r\n", "\r\n"];
        let cases = transport.service.addresses().into_iter().flat_map(|address| begun.map(|begun| (address, begun)));
        join_all(cases.map(async |(address, begun)| {
            let mut stream = transport.connect_to(address).await;
            let start = Instant::now();
            stream.write_all(begun.as_bytes()).await.unwrap();
            assert_timed_out(&transport, &mut stream, start, LONG).await;
        }))
        .await;
    }
}

#[tokio::test]
async fn late_body_is_408_and_closes_the_connection() {
    for transport in Transport::each(|limits| limits.request = SHORT).await {
        let service = &transport.service;
        for (address, path) in [(service.store_address, "/v1/pets"), (service.messages_address, "/v1/messages")] {
            for framing in ["content-length: 40\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
                let mut stream = transport.connect_to(address).await;
                let start = Instant::now();
                stream.write_all(transport.begun_post(path, framing).as_bytes()).await.unwrap();
                let answer = assert_timed_out(&transport, &mut stream, start, SHORT).await;
                assert_eq!(answer.header("x-request-id"), Some("mine"));
            }
        }
    }
}

#[tokio::test]
async fn head_deadline_starts_with_its_first_byte() {
    let transport = Transport::plain(|limits| limits.head = SHORT).await;
    let mut stream = transport.connect().await;
    for _ in 0..2 {
        tokio::time::sleep(SHORT * 2).await;
        transport.assert_answers(&mut stream).await;
    }
}

/// `crates/bounded-http` tests it without TLS.
#[tokio::test]
async fn client_that_does_not_read_over_tls_is_disconnected() {
    let transport = Transport::tls(|limits| (limits.head, limits.answer) = (TIMEOUT, LONG)).await;
    let service = &transport.service;
    let pet = parse_new_pet(&format!(r#"{{"name":"{}","categoryId":3}}"#, "🦊".repeat(255))).unwrap();
    service.store.import_pets(Box::new(std::iter::repeat_n(Ok(pet), 100))).await.unwrap();
    let mut stream = transport.connect().await;
    let key = &service.key;
    let list = format!("GET /v1/pets?limit=100 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    // The responses exceed all buffers, so they stop. Then the service closes the connection, and writing fails.
    until(async || stream.write_all(list.as_bytes()).await.is_err() || stream.flush().await.is_err()).await;
    let other = transport.send(service.request("GET", "/livez")).await;
    assert_eq!(other.status(), 200, "other clients are served");
}

#[tokio::test]
async fn connection_is_reused_after_errors() {
    let transport = Transport::plain(|_| {}).await;
    let mut stream = transport.connect().await;
    for (path, status) in [("/livez", 200), ("/nothing", 404), ("/v1/pets", 401), ("/livez", 200)] {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(transport.read_response(&mut stream).await.status(), status);
    }
}

#[tokio::test]
async fn http_1_0_is_supported() {
    let transport = Transport::plain(|_| {}).await;
    let answer = soon(raw(transport.service.store_address, b"GET /livez HTTP/1.0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"status\":\"live\"}"), "{answer}");

    let mut stream = transport.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /livez HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await.unwrap();
        let answer = transport.read_response(&mut stream).await;
        assert_eq!((answer.status(), answer.header("connection")), (200, Some("keep-alive")));
    }
}

#[tokio::test]
async fn bytes_that_are_not_http_are_rejected() {
    let service = Service::start().await;
    let long = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    for (bytes, status) in [("hello\r\n\r\n", 400), ("GET /livez HTTP/1.1\r\nno colon\r\n\r\n", 400), (&long, 431)] {
        let answer = soon(raw(service.store_address, bytes.as_bytes())).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:.60}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the connection ends: {answer}");
    }
    let malformed = service.metrics().await.metric(r#"petstore_http_requests_malformed_total{listener="store"}"#);
    assert_eq!(malformed, 3.0);
}

#[tokio::test]
async fn client_that_disconnects_within_its_body_adds_nothing() {
    let transport = Transport::plain(|_| {}).await;
    let framing = format!("content-length: {}\r\n\r\n{REX}", REX.len() + 1);
    let mut stream = transport.connect_with(&transport.begun_post("/v1/pets", &framing)).await;
    stream.shutdown().await.unwrap();
    soon(read_to_end(&mut stream)).await;
    assert!(transport.service.ids("/v1/pets").await.is_empty());
}

#[tokio::test]
async fn client_still_sending_can_read_its_rejection() {
    let transport = Transport::plain(|_| {}).await;
    let body = vec![b' '; 4 << 20];
    let declared = format!("content-length: {}\r\n\r\n", body.len());
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    for (head, status) in [
        (transport.begun_post("/v1/pets", &declared), 413),
        (transport.begun_post("/v1/pets", &chunked), 413),
        // Spaces after the size of a chunk.
        (transport.begun_post("/v1/pets", "transfer-encoding: chunked\r\n\r\n1"), 400),
        (format!("POST /v1/pets HTTP/1.1\r\nhost: x\r\n{declared}"), 401),
        (format!("POST /v1/nothing HTTP/1.1\r\nhost: x\r\n{declared}"), 404),
        (format!("PUT /v1/pets HTTP/1.1\r\nhost: x\r\n{chunked}"), 405),
    ] {
        let mut stream = transport.connect_with(&head).await;
        soon(stream.write_all(&body)).await.expect("the service reads the body");
        let answer = transport.read_response(&mut stream).await;
        assert_eq!((answer.status(), answer.header("connection")), (status, Some("close")));
        answer.code();
        assert_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn connection_above_the_limit_is_rejected() {
    let transport = Transport::plain(|limits| limits.connections = Some(4)).await;
    let service = &transport.service;
    let mut open = Vec::new();
    for address in [service.store_address, service.messages_address, service.messages_address, service.store_address] {
        let mut stream = transport.connect_to(address).await;
        transport.assert_answers(&mut stream).await;
        open.push(stream);
    }
    // The service rejects several connections at once.
    for _ in 0..40 {
        let mut rejected = transport.connect_with(LIVE).await;
        let answer = transport.read_response(&mut rejected).await;
        assert_eq!(answer.code(), "unavailable");
        assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
        assert!(answer.header("x-request-id").is_some());
        assert_closed(&mut rejected).await;
    }
    let operator = soon(Request::new(service.ops_address, "GET", "/livez").send()).await;
    assert_eq!(operator.status(), 200, "a connection is reserved for the operator");

    open.pop();
    until(async || {
        let mut next = transport.connect_with(LIVE).await;
        transport.read_response(&mut next).await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn idle_listener_reserves_no_connections() {
    let transport = Transport::plain(|limits| limits.connections = Some(1)).await;
    let service = &transport.service;
    for address in [service.ops_address, service.ops_address, service.messages_address, service.store_address] {
        assert_eq!(soon(Request::new(address, "GET", "/livez").send()).await.status(), 200);
    }
}

#[tokio::test]
async fn draining_service_answers_but_is_not_ready() {
    let mut transport = Transport::plain(|limits| limits.drain_delay = Duration::from_hours(1)).await;
    let service = &transport.service;
    until(async || service.get("/readyz").await.status() == 200).await;

    service.ask_to_stop(Stop::Drain);
    until(async || service.get("/readyz").await.status() != 200).await;
    for address in service.addresses() {
        let ready = Request::new(address, "GET", "/readyz").send().await;
        assert_eq!((ready.code().as_str(), ready.header("retry-after")), ("unavailable", Some("1")));
        assert_eq!(Request::new(address, "GET", "/livez").send().await.status(), 200);
    }
    let listed = service.get("/v1/pets").await;
    assert_eq!((listed.status(), listed.header("connection")), (200, Some("close")), "the next request goes elsewhere");
    service.create_pets(1).await;

    service.ask_to_stop(Stop::Now);
    soon(transport.service.stopped()).await;
    transport.assert_closed().await;
}

#[tokio::test]
async fn drain_delay_ends() {
    let mut transport = Transport::plain(|limits| limits.drain_delay = Duration::from_millis(50)).await;
    transport.service.ask_to_stop(Stop::Drain);
    soon(transport.service.stopped()).await;
    transport.assert_closed().await;
}

/// `crates/bounded-http` tests stops without TLS.
#[tokio::test]
async fn stop_over_tls_closes_idle_connections_and_handshakes() {
    let mut transport = Transport::tls(|_| {}).await;
    let mut used = transport.connect().await;
    transport.assert_answers(&mut used).await;
    let mut without_handshake = TcpStream::connect(transport.service.store_address).await.unwrap();
    // A later connection is served, so the earlier one has been accepted.
    assert_eq!(transport.send(transport.service.request("GET", "/livez")).await.status(), 200);

    transport.service.ask_to_stop(Stop::Drain);

    assert_closed(&mut used).await;
    assert_eq!(soon(read_to_end(&mut without_handshake)).await, "");
    soon(transport.service.stopped()).await;
    transport.assert_closed().await;
}

/// Reads a 408 that does not come too early, and the end of the connection.
async fn assert_timed_out(
    transport: &Transport,
    stream: &mut Box<dyn Stream>,
    start: Instant,
    limit: Duration,
) -> Response {
    let answer = transport.read_response(stream).await;
    assert!(start.elapsed() + TICK >= limit, "not before its time");
    assert_eq!((answer.code().as_str(), answer.header("connection")), ("request_timeout", Some("close")));
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_closed(stream).await;
    answer
}

/// Over TLS, an end without a close notification is an error.
async fn assert_closed(stream: &mut Box<dyn Stream>) {
    assert_eq!(soon(read_to_end(stream)).await, "");
}
