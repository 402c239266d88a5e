//! Connections: how long they may take, what may follow on them, how many there may be, and how they end.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use petstore::server::{Limits, Stop};
use testkit::{Request, Response, raw, read_response, read_to_end, soon};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::service::{Service, Setup};

const SHORT: Duration = Duration::from_millis(200);

/// Deadlines are read off the coarse clock, which may be this much behind.
const TICK: Duration = Duration::from_millis(10);
const LIVE: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn late_head_is_408_and_closes_the_connection() {
    let service = Service::start_with(limits(|limits| limits.head = SHORT)).await;
    let doors = [service.store_address, service.messages_address, service.ops_address];
    let begun = ["G", "GET /v1/pets HTT", "GET /v1/pets HTTP/1.1\r\nhost: x\r\n", "\r\n"];
    let cases = doors.into_iter().flat_map(|door| begun.map(|begun| (door, begun)));
    join_all(cases.map(async |(door, begun)| {
        let mut stream = TcpStream::connect(door).await.unwrap();
        let start = Instant::now();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let answer = soon(read_response(&mut stream)).await;
        assert!(start.elapsed() + TICK >= SHORT, "not before its time");
        assert_timeout(&answer);
        assert_eq!(soon(read_to_end(&mut stream)).await, "", "nothing follows");
    }))
    .await;
}

#[tokio::test]
async fn slow_head_does_not_extend_its_deadline() {
    let service = Service::start_with(limits(|limits| limits.head = SHORT)).await;
    let mut stream = connect(&service).await;
    stream.write_all(b"GET /v1/pets HTTP/1.1\r\nx: ").await.unwrap();
    let answer = soon(answer_while_dripping(stream, b"x")).await;
    assert_timeout(&answer);
}

#[tokio::test]
async fn head_deadline_starts_with_its_first_byte() {
    let service = Service::start_with(limits(|limits| limits.head = SHORT)).await;
    let mut stream = connect(&service).await;
    for _ in 0..2 {
        tokio::time::sleep(SHORT * 2).await;
        stream.write_all(LIVE.as_bytes()).await.unwrap();
        assert_eq!(soon(read_response(&mut stream)).await.status(), 200);
    }
}

#[tokio::test]
async fn late_body_is_408_and_closes_the_connection() {
    let service = Service::start_with(limits(|limits| limits.request = SHORT)).await;
    for (address, path) in [(service.store_address, "/v1/pets"), (service.messages_address, "/v1/messages")] {
        for framing in ["content-length: 40\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let start = Instant::now();
            stream.write_all(begun_post(&service, path, framing).as_bytes()).await.unwrap();
            let answer = soon(read_response(&mut stream)).await;
            assert!(start.elapsed() + TICK >= SHORT, "not before its time");
            assert_timeout(&answer);
            assert_eq!(answer.header("x-request-id"), Some("mine"));
            assert_eq!(soon(read_to_end(&mut stream)).await, "", "nothing follows");
        }
    }
}

#[tokio::test]
async fn slow_body_does_not_extend_its_deadline() {
    let service = Service::start_with(limits(|limits| limits.request = SHORT)).await;
    for (framing, drop) in
        [("content-length: 60000\r\n\r\n", &b" "[..]), ("transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n")]
    {
        let mut stream = connect(&service).await;
        stream.write_all(begun_post(&service, "/v1/pets", framing).as_bytes()).await.unwrap();
        assert_timeout(&soon(answer_while_dripping(stream, drop)).await);
    }
}

#[tokio::test]
async fn idle_connection_is_closed_silently() {
    let service = Service::start_with(limits(|limits| (limits.head, limits.idle) = (SHORT, SHORT))).await;
    let start = Instant::now();
    let mut fresh = connect(&service).await;
    assert_eq!(soon(read_to_end(&mut fresh)).await, "");
    assert!(start.elapsed() + TICK >= SHORT, "not before its time");

    let mut used = connect(&service).await;
    used.write_all(LIVE.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut used)).await.status(), 200);
    assert_eq!(soon(read_to_end(&mut used)).await, "");
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let service = Service::start_with(limits(|limits| (limits.head, limits.answer) = (SHORT, SHORT))).await;
    let name = "🦊".repeat(255);
    for _ in 0..100 {
        let pet = format!(r#"{{"name":"{name}","categoryId":3}}"#);
        service.store.create_pet(petstore::http::parse_new_pet(&pet).unwrap(), None).await.unwrap();
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(service.store_address).await.unwrap();
    let list = format!("GET /v1/pets?limit=100 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", service.key);

    // More than any buffer on the way holds, so that the answers stop; then the service closes and writing fails.
    soon(async {
        while stream.write_all(list.as_bytes()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(service.get("/v1/pets?limit=1").await.status(), 200, "others are served");
}

#[tokio::test]
async fn connection_is_reused() {
    let service = Service::start().await;
    let mut stream = connect(&service).await;
    for (id, (path, status)) in
        [("/livez", 200), ("/nothing", 404), ("/v1/pets", 401), ("/livez", 200)].into_iter().enumerate()
    {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-request-id: r{id}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!((answer.status(), answer.header("x-request-id")), (status, Some(format!("r{id}").as_str())));
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let service = Service::start().await;
    let body = r#"{"name":"Rex","categoryId":3}"#;
    let authorization = format!("authorization: Bearer {}\r\n", service.key);
    let requests: String = (1..=20)
        .map(|n| match n % 2 {
            0 => format!("GET /v1/pets/{} HTTP/1.1\r\nhost: x\r\n{authorization}x-request-id: r{n}\r\n\r\n", n / 2),
            _ => format!(
                "POST /v1/pets HTTP/1.1\r\nhost: x\r\n{authorization}x-request-id: r{n}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        })
        .collect();
    let mut stream = connect(&service).await;
    stream.write_all(requests.as_bytes()).await.unwrap();
    for n in 1..=20 {
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!(answer.header("x-request-id"), Some(format!("r{n}").as_str()));
        assert_eq!(answer.status(), if n % 2 == 0 { 200 } else { 201 }, "{n}");
        assert_eq!(answer.json()["id"], (n + 1) / 2);
    }
}

#[tokio::test]
async fn unread_body_is_not_parsed_as_a_request() {
    let service = Service::start().await;
    let hidden = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut stream = connect(&service).await;
    let request = format!(
        "GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: r1\r\ncontent-length: {}\r\n\r\n{hidden}\
         GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: r2\r\nconnection: close\r\n\r\n",
        hidden.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answers = soon(read_to_end(&mut stream)).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), answers.matches("HTTP/1.1 ").count(), "{answers}");
    assert!(answers.contains("x-request-id: r1\r\n"), "{answers}");
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let service = Service::start().await;
    let answer = soon(raw(service.store_address, b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn http_1_0_is_supported() {
    let service = Service::start().await;
    let answer = soon(raw(service.store_address, b"GET /livez HTTP/1.0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"status\":\"live\"}"), "{answer}");

    let mut stream = connect(&service).await;
    for _ in 0..2 {
        stream.write_all(b"GET /livez HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await.unwrap();
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!((answer.status(), answer.header("connection")), (200, Some("keep-alive")));
    }
}

#[tokio::test]
async fn bytes_that_are_not_http_are_rejected() {
    let service = Service::start().await;
    let long = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    for (bytes, status) in [
        ("hello\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (&long, 431),
    ] {
        let answer = soon(raw(service.store_address, bytes.as_bytes())).await;
        let shown: String = bytes.chars().take(60).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the connection ends with it: {answer}");
    }
    assert_eq!(service.get("/livez").await.status(), 200);
}

#[tokio::test]
async fn malformed_chunks_are_rejected() {
    let service = Service::start().await;
    for chunks in ["zz\r\n{}\r\n", "-1\r\n", "2\r\n{}}\r\n0\r\n\r\n"] {
        let request = begun_post(&service, "/v1/pets", &format!("transfer-encoding: chunked\r\n\r\n{chunks}"));
        let mut stream = connect(&service).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(soon(read_response(&mut stream)).await.code(), "invalid_json", "{chunks:?}");
        assert_eq!(soon(read_to_end(&mut stream)).await, "", "{chunks:?}");
    }
}

#[tokio::test]
async fn client_that_disconnects_within_its_body_adds_nothing() {
    let service = Service::start().await;
    let mut stream = connect(&service).await;
    let whole = r#"{"name":"Rex","categoryId":3}"#;
    let request = begun_post(&service, "/v1/pets", &format!("content-length: {}\r\n\r\n{whole}", whole.len() + 1));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    soon(read_to_end(&mut stream)).await;
    assert_eq!(service.get("/v1/pets").await.json(), serde_json::json!([]));
}

#[tokio::test]
async fn client_still_sending_can_read_its_rejection() {
    let service = Service::start().await;
    let body = vec![b' '; 4 << 20];
    let declared = format!("content-length: {}\r\n\r\n", body.len());
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    let cases = [
        (begun_post(&service, "/v1/pets", &declared), 413),
        (begun_post(&service, "/v1/pets", &chunked), 413),
        (format!("POST /v1/pets HTTP/1.1\r\nhost: x\r\n{declared}"), 401),
        (format!("POST /v1/nothing HTTP/1.1\r\nhost: x\r\n{declared}"), 404),
        (format!("PUT /v1/pets HTTP/1.1\r\nhost: x\r\n{chunked}"), 405),
    ];
    for (head, status) in cases {
        let mut stream = connect(&service).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        soon(stream.write_all(&body)).await.expect("the service takes what is sent");
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!((answer.status(), answer.header("connection")), (status, Some("close")));
        answer.code();
        assert_eq!(soon(read_to_end(&mut stream)).await, "", "{status}: nothing follows");
    }
}

#[tokio::test]
async fn connection_above_the_limit_is_rejected() {
    let service = Service::start_with(limits(|limits| limits.connections = 4)).await;
    let mut open = Vec::new();
    for door in [service.store_address, service.messages_address, service.messages_address, service.store_address] {
        let mut stream = TcpStream::connect(door).await.unwrap();
        stream.write_all(LIVE.as_bytes()).await.unwrap();
        assert_eq!(soon(read_response(&mut stream)).await.status(), 200);
        open.push(stream);
    }
    // More of them than are told at once.
    for _ in 0..40 {
        let mut refused = connect(&service).await;
        refused.write_all(LIVE.as_bytes()).await.unwrap();
        let answer = soon(read_response(&mut refused)).await;
        assert_eq!((answer.status(), answer.code().as_str()), (503, "unavailable"));
        assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(soon(read_to_end(&mut refused)).await, "", "nothing follows");
    }
    let operator = soon(Request::new(service.ops_address, "GET", "/livez").send()).await;
    assert_eq!(operator.status(), 200, "who runs the service gets in");

    open.pop();
    soon(async {
        loop {
            let mut next = connect(&service).await;
            next.write_all(LIVE.as_bytes()).await.unwrap();
            if read_response(&mut next).await.status() == 200 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn idle_listener_reserves_no_connections() {
    let service = Service::start_with(limits(|limits| limits.connections = 1)).await;
    for door in [service.ops_address, service.ops_address, service.messages_address, service.store_address] {
        assert_eq!(soon(Request::new(door, "GET", "/livez").send()).await.status(), 200);
    }
}

#[tokio::test]
async fn draining_service_answers_but_is_not_ready() {
    let mut service = Service::start_with(limits(|limits| limits.drain_delay = Duration::from_millis(1_500))).await;
    assert_eq!(service.get("/readyz").await.status(), 200);

    service.ask_to_stop(Stop::Drain);
    soon(async {
        while service.get("/readyz").await.status() == 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for address in [service.store_address, service.messages_address, service.ops_address] {
        let ready = Request::new(address, "GET", "/readyz").send().await;
        assert_eq!((ready.status(), ready.code().as_str()), (503, "unavailable"));
        assert_eq!(ready.header("retry-after"), Some("1"));
        assert_eq!(Request::new(address, "GET", "/livez").send().await.status(), 200);
    }
    assert_eq!(service.get("/v1/pets").await.status(), 200);
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.status(), 201);

    soon(service.stopped()).await;
    assert_all_doors_closed(&service).await;
}

#[tokio::test]
async fn request_in_flight_completes_before_the_stop() {
    let mut service = Service::start().await;
    let body = r#"{"name":"Rex","categoryId":3}"#;
    let mut stream = connect(&service).await;
    let framing = format!("content-length: {}\r\nexpect: 100-continue\r\n\r\n", body.len());
    stream.write_all(begun_post(&service, "/v1/pets", &framing).as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 100, "the request is under way");

    service.ask_to_stop(Stop::Drain);
    soon(async {
        while TcpStream::connect(service.store_address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    stream.write_all(body.as_bytes()).await.unwrap();
    let answer = soon(read_response(&mut stream)).await;
    assert_eq!((answer.status(), answer.header("connection")), (201, Some("close")));
    assert_eq!(soon(read_to_end(&mut stream)).await, "");
    drop(stream);
    soon(service.stopped()).await;
    let kept: i64 = service.database().query_row("SELECT count(*) FROM pets", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn stop_closes_idle_and_rejects_new_connections() {
    let mut service = Service::start().await;
    let mut used = connect(&service).await;
    used.write_all(LIVE.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut used)).await.status(), 200);
    let mut fresh = connect(&service).await;
    // A later connection of the same door was answered, so the earlier one was accepted.
    assert_eq!(service.get("/livez").await.status(), 200);

    service.ask_to_stop(Stop::Drain);

    assert_eq!(soon(read_to_end(&mut used)).await, "");
    assert_eq!(soon(read_to_end(&mut fresh)).await, "");
    drop((used, fresh));
    soon(service.stopped()).await;
    assert_all_doors_closed(&service).await;
}

#[tokio::test]
async fn immediate_stop_aborts_requests() {
    let mut service = Service::start().await;
    let mut stream = connect(&service).await;
    let framing = "content-length: 40\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(begun_post(&service, "/v1/pets", framing).as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut stream)).await.status(), 100, "the request is under way");

    service.ask_to_stop(Stop::Drain);
    service.ask_to_stop(Stop::Now);

    soon(service.stopped()).await;
}

/// The usual setup with other limits. The server first looks at a connection after the time for a head.
fn limits(change: impl FnOnce(&mut Limits)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.limits);
    setup
}

async fn connect(service: &Service) -> TcpStream {
    TcpStream::connect(service.store_address).await.unwrap()
}

/// A POST of JSON with the service's key, up to what says how its body is framed and begins.
fn begun_post(service: &Service, path: &str, framing: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nx-request-id: mine\r\n\
         content-type: application/json\r\n{framing}",
        service.key
    )
}

/// Reads an answer while `drop` is sent again and again.
async fn answer_while_dripping(mut stream: TcpStream, drop: &[u8]) -> Response {
    while tokio::time::timeout(Duration::from_millis(20), stream.peek(&mut [0])).await.is_err() {
        // An answer may cross what is sent here.
        let _ = stream.write_all(drop).await;
    }
    read_response(&mut stream).await
}

fn assert_timeout(answer: &Response) {
    assert_eq!((answer.status(), answer.code().as_str()), (408, "request_timeout"));
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(answer.header("x-request-id").is_some());
}

async fn assert_all_doors_closed(service: &Service) {
    for address in [service.store_address, service.messages_address, service.ops_address] {
        assert!(TcpStream::connect(address).await.is_err(), "{address}");
    }
}
