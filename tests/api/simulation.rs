//! Simulated failures: `Prefer` on staging. `tests/contract/examples.rs` compares the errors with the document.

use std::time::{Duration, Instant};

use petstore::api::{Operation, RateLimit};
use petstore::config::SimulationMode;
use petstore::domain::Deployment;
use testkit::{Request, Response, raw, read_to_end, soon, until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::failing_keys::failing_key;
use crate::service::{HELLO, REMOVAL, REX, Service, Setup};
use crate::transport::Transport;

pub fn preferring(service: &Service, operation: Operation, preferences: &str) -> Request {
    service.request_to(operation, "1").key(&service.key).header("prefer", preferences)
}

/// The preferences that were applied. Empty if there are none.
pub fn applied(answer: &Response) -> &str {
    answer.header("preference-applied").unwrap_or_default()
}

/// The status, and the preferences that were applied.
pub fn outcome(answer: &Response) -> (u16, &str) {
    (answer.status(), applied(answer))
}

/// A request for each POST of the API, with an `Idempotency-Key`. All of them succeed in this order.
fn writes(service: &Service) -> impl Iterator<Item = Request> {
    let requests = service.operations().into_iter().enumerate();
    let keyed = requests.map(|(n, request)| request.key(&service.key).header("idempotency-key", &format!("key-{n}")));
    keyed.filter(|request| request.bytes().starts_with(b"POST "))
}

/// Sends a request and reads until the server closes the connection. The request asks for a close after the response.
async fn send_to_end(service: &Service, request: Request) -> String {
    let bytes = request.header("connection", "close").bytes();
    let is_message = bytes.starts_with(b"POST /v1/messages ");
    soon(raw(if is_message { service.messages_address } else { service.store_address }, &bytes)).await
}

#[test]
fn simulated_failures_execute_and_store_nothing() {
    Service::with_pets_on_every_database(2, async |service| {
        for (preferences, begins) in [
            ("code=503", "HTTP/1.1 503"),
            ("error=invalid_value", "HTTP/1.1 400"),
            ("code=409, delay=5", "HTTP/1.1 409"),
            ("drop=request", ""),
            ("drop=request, code=500, delay=5", ""),
            ("code=500, drop=response", ""),
        ] {
            for request in writes(service) {
                let text = send_to_end(service, request.header("prefer", preferences)).await;
                assert_eq!(&text[..text.len().min(12)], begins, "{preferences}: {text}");
            }
        }
        assert_eq!(service.ids("/v1/pets").await, [1, 2]);
        assert_eq!(service.get("/v1/store/orders").await.body, "[]");
        for request in writes(service) {
            let answer = request.send().await;
            assert!(answer.head.status.is_success() && !answer.is_replayed(), "{}", answer.shown());
        }
    });
}

#[test]
fn retry_after_a_dropped_response_is_replayed() {
    Service::with_pets_on_every_database(2, async |service| {
        for (request, again) in writes(service).zip(writes(service)) {
            assert_eq!(send_to_end(service, request.header("prefer", "drop=response")).await, "");
            let again = again.send().await;
            assert!(again.head.status.is_success() && again.is_replayed(), "{}", again.shown());
            assert_eq!(applied(&again), "");
        }
        assert_eq!(service.ids("/v1/pets").await, [1, 2, 3]);
        assert_eq!(service.ids("/v1/store/orders").await, [1, 2]);
    });
}

#[tokio::test]
async fn dropped_connections_end_without_a_byte() {
    for transport in Transport::each(|_| {}).await {
        for (preference, animals) in [("drop=request", 0), ("drop=response", 1)] {
            let mut stream = transport.create(&format!("prefer: {preference}\r\n")).await;
            // With TLS, this fails without a close notification.
            assert_eq!(soon(read_to_end(&mut stream)).await, "", "{preference}");
            assert_eq!(transport.service.store.count_pets().await.unwrap(), animals, "{preference}");
        }
        // The requests before it get responses.
        let key = &transport.service.key;
        let get = format!("GET /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
        let mut stream = transport.connect().await;
        stream.write_all(format!("{get}\r\n").as_bytes()).await.unwrap();
        assert_eq!(transport.read_response(&mut stream).await.status(), 200);
        stream.write_all(format!("{get}prefer: drop=response\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(soon(read_to_end(&mut stream)).await, "");
    }
}

#[tokio::test]
async fn delay_holds_back_any_response() {
    let service = Service::start().await;
    for (preferences, status) in [("delay=300", 201), ("code=409, delay=300", 409), ("DELAY=\"300\"", 201)] {
        let request = preferring(&service, Operation::CreatePet, preferences).json(REX);
        let began = Instant::now();
        let answer = request.send().await;
        assert_eq!(answer.status(), status, "{}", answer.shown());
        assert!(began.elapsed() >= Duration::from_millis(300), "{preferences}: {:?}", began.elapsed());
        assert_eq!(applied(&answer), preferences.replace('"', "").to_lowercase());
    }
    let began = Instant::now();
    let dropped = preferring(&service, Operation::CreatePet, "delay=300, drop=request").json(REX);
    assert_eq!(send_to_end(&service, dropped).await, "");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn delay_ends_with_its_client() {
    let service = Service::start().await;
    let request = preferring(&service, Operation::CreatePet, "delay=30000").json(REX);
    let mut stream = TcpStream::connect(service.store_address).await.unwrap();
    stream.write_all(&request.bytes()).await.unwrap();
    until(async || service.store.count_pets().await.unwrap() > 0).await;
    drop(stream);
    until(async || service.metrics().await.metric("petstore_http_requests_abandoned_total") == 1.0).await;
}

#[tokio::test]
async fn date_simulates_the_day_of_the_removal() {
    let service = Service::with_pets(1).await;
    let on = |operation, date: &str| preferring(&service, operation, &format!("date={date}"));

    for (date, status) in [("2030-12-04", 200), ("2030-12-05", 410), ("9999-12-31", 410)] {
        let answer = on(Operation::GetPet, date).send().await;
        assert_eq!(outcome(&answer), (status, &*format!("date={date}")));
        assert_eq!(answer.header("deprecation"), Some("@1795132800"));
    }
    let without_key = service.request("GET", "/v1/pets/1").header("prefer", "date=2030-12-05").send().await;
    assert_eq!((without_key.code().as_str(), applied(&without_key)), ("missing_api_key", ""));

    let create = |date| on(Operation::CreatePet, date).header("idempotency-key", "created").json(REX);
    let created = create("2031-01-01").send().await;
    assert_eq!((created.status(), created.header("location")), (201, None));
    let replayed = create("2030-12-04").send().await;
    assert!(replayed.is_replayed() && replayed.header("location").is_some(), "{}", replayed.shown());

    assert_eq!(applied(&on(Operation::GetPet, "2026-11-20").send().await), "date=2026-11-20", "today");
    service.clock.set(REMOVAL);
    assert_eq!(on(Operation::GetPet, "2026-11-20").send().await.code(), "operation_removed", "it stays removed");
}

#[tokio::test]
async fn date_applies_to_the_document_without_a_key() {
    let service = Service::start().await;
    for (preferences, expected) in
        [("date=2030-12-05, code=503, drop=response", "date=2030-12-05"), ("code=503, delay=30000", "")]
    {
        let document = service.request("GET", "/openapi.json").header("prefer", preferences).send().await;
        assert_eq!(outcome(&document), (200, expected));
        assert_eq!(document.body.contains("getPet"), expected.is_empty());
        assert!(document.list("vary").contains(&"prefer".to_owned()), "{preferences}");
    }
}

#[tokio::test]
async fn preferences_combine() {
    let service = Service::with_pets(1).await;
    for (operation, preferences, code, expected) in [
        // The reserved order.
        (Operation::PlaceOrder, "code=409, delay=15", "conflict", "code=409, delay=15"),
        (Operation::CreatePet, "code=400, error=invalid_value", "invalid_value", "code=400, error=invalid_value"),
        (Operation::CreatePet, "error=invalid_value, code=503", "invalid_value", "error=invalid_value"),
        (Operation::CreatePet, "error=not_found, code=503", "unavailable", "code=503"),
        (Operation::CreatePet, "code=503, code=409", "unavailable", "code=503"),
        (Operation::GetPet, "date=2030-12-05, code=503", "unavailable", "date=2030-12-05, code=503"),
        (Operation::GetPet, "wait=10; x, code=404;, respond-async", "not_found", "code=404"),
    ] {
        let answer = preferring(&service, operation, preferences).send().await;
        assert_eq!((answer.code().as_str(), applied(&answer)), (code, expected), "{preferences}");
    }
    let first = preferring(&service, Operation::ListOrders, "code=503, first=9, every=9").send().await;
    assert_eq!(first.status(), 200, "every applies, first does not");
    let lines = preferring(&service, Operation::ListPets, "respond-async").header("prefer", "code=503");
    assert_eq!(lines.send().await.status(), 503);
    let head = service.call("HEAD", "/v1/pets").header("prefer", "code=503").send().await;
    assert_eq!((head.status(), &*head.body, applied(&head)), (503, "", "code=503"));
}

/// `preferences_are_parsed_as_rfc_7240_says` has other forms.
#[tokio::test]
async fn other_preferences_are_ignored() {
    let service = Service::with_pets(1).await;
    for preferences in [
        "", "code=200", "code=409", "code=abc", "code=99999", "error=conflict", "error=teapot", "drop",
        "drop=everything", "code=0503", "x-code=503", "code;503", "code=, code=503", "delay=0", "delay=30001",
        "delay=-1", "delay=1e3", "delay=+5", "delay", "delay=9999999999999999999", "date=2026-11-19",
        "date=2030-13-01", "date=2030-02-30", "date=20301205", "date=2030-12-5", "date=2030-12-05T00", "date=tomorrow",
        "date=",
    ] {
        let answer = preferring(&service, Operation::GetPet, preferences).send().await;
        assert_eq!(outcome(&answer), (200, ""), "{preferences}");
    }
    for path in ["/livez", "/readyz", "/docs", "/"] {
        let answer = service.request("GET", path).header("prefer", "code=503, drop=response, delay=30000").send().await;
        assert!(answer.status() < 400 && applied(&answer).is_empty(), "{path}");
    }
    let other_method = service.call("DELETE", "/v1/pets").header("prefer", "code=503").send().await;
    assert_eq!(other_method.code(), "method_not_allowed");
}

#[tokio::test]
async fn production_ignores_preferences() {
    let production = Setup { deployment: Deployment::Production, ..Setup::default() };
    let off = Setup { simulation: SimulationMode::Off, ..Setup::default() };
    for setup in [production, off] {
        let service = Service::start_with(setup).await;
        service.create_pets(1).await;
        for preferences in
            ["code=503", "error=internal_error", "drop=request", "drop=response", "delay=30000", "date=2030-12-05"]
        {
            let answer = preferring(&service, Operation::GetPet, preferences).send().await;
            assert_eq!(outcome(&answer), (200, ""), "{preferences}");
        }
        let document = service.request("GET", "/openapi.json").header("prefer", "date=2030-12-05").send().await;
        assert!(document.body.contains("getPet"));
        let (_, key) = failing_key(&service, "code=503").await;
        assert_eq!(service.request("GET", "/v1/pets").key(&key).send().await.status(), 200, "a key with preferences");
    }
}

#[tokio::test]
async fn key_and_rate_limit_come_first() {
    let rate_limit = RateLimit::parse("1/h").ok();
    let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
    let unavailable = || service.request("GET", "/v1/pets").header("prefer", "code=503");
    for (code, limit, request) in [
        ("missing_api_key", None, unavailable()),
        ("invalid_api_key", None, unavailable().key("wrong")),
        ("unavailable", Some(r#""default";r=0;t=3600"#), unavailable().key(&service.key)),
        ("rate_limited", Some(r#""default";r=0;t=3600"#), unavailable().key(&service.key)),
    ] {
        let answer = request.send().await;
        assert_eq!((&*answer.code(), answer.header("ratelimit")), (code, limit));
        assert_eq!(applied(&answer), if code == "unavailable" { "code=503" } else { "" });
    }
}

/// Without a rate limit, a simulated 429 has the headers of its message.
#[tokio::test]
async fn simulated_errors_have_the_rate_limit_headers_of_real_ones() {
    for (limit, [now, policy, wait], words) in [
        (Some("10/min"), [r#""default";r=0;t=6"#, r#""default";q=10;w=60"#, "6"], "10 requests per minute"),
        (None, [r#""default";r=0;t=1"#, r#""default";q=600;w=60"#, "1"], "600 requests per minute"),
    ] {
        let rate_limit = limit.map(|limit| RateLimit::parse(limit).unwrap());
        let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
        let limited = preferring(&service, Operation::ListPets, "code=429").send().await;
        let headers = ["ratelimit", "ratelimit-policy", "retry-after"].map(|name| limited.header(name));
        assert_eq!(headers, [Some(now), Some(policy), Some(wait)]);
        assert!(limited.body.contains(words), "{}", limited.body);
        let chosen = preferring(&service, Operation::ListPets, "code=429, retry-after=30").send().await;
        assert_eq!((applied(&chosen), chosen.header("retry-after")), ("code=429, retry-after=30", Some("30")));
        for preference in ["code=401", "code=405"] {
            let rejected = preferring(&service, Operation::ListPets, preference).send().await;
            assert_eq!((applied(&rejected), rejected.header("ratelimit")), (preference, None));
        }
    }
}

#[tokio::test]
async fn errors_are_sent_before_the_body_is_read() {
    let transport = Transport::plain(|_| {}).await;
    let head = transport.begun_post("/v1/pets", "content-length: 100\r\nprefer: code=503\r\n\r\n");
    let mut stream = transport.connect_with(&head).await;
    assert_eq!(transport.read_response(&mut stream).await.status(), 503);
}

#[tokio::test]
async fn simulated_requests_have_their_own_label() {
    let service = Service::start().await;
    assert_eq!(service.get("/v1/pets").await.status(), 200);
    assert_eq!(preferring(&service, Operation::ListPets, "code=503").send().await.status(), 503);
    assert_eq!(preferring(&service, Operation::ListPets, "delay=1").send().await.status(), 200);
    assert_eq!(send_to_end(&service, preferring(&service, Operation::CreatePet, "drop=response").json(REX)).await, "");
    assert_eq!(preferring(&service, Operation::ListPets, "ignored").send().await.status(), 200);
    let sent = service.message_request().key(&service.key).header("prefer", "code=500").json(HELLO).send().await;
    assert_eq!(sent.status(), 500);

    let metrics = service.metrics().await;
    for (labels, count) in [
        (r#"requests_total{route="/v1/pets",method="GET",status="200"}"#, 2.0),
        (r#"requests_total{route="/v1/pets",method="GET",status="200",simulated="true"}"#, 1.0),
        (r#"requests_total{route="/v1/pets",method="GET",status="503",simulated="true"}"#, 1.0),
        (r#"requests_total{route="/v1/pets",method="POST",status="444",simulated="true"}"#, 1.0),
        (r#"requests_total{route="/v1/messages",method="POST",status="500",simulated="true"}"#, 1.0),
        (r#"request_duration_seconds_count{route="/v1/pets",method="GET"}"#, 2.0),
        (r#"request_duration_seconds_count{route="/v1/pets",method="GET",simulated="true"}"#, 2.0),
    ] {
        assert_eq!(metrics.metric(&format!("petstore_http_{labels}")), count, "{labels}");
    }
}

#[tokio::test]
async fn service_stops_while_a_response_is_delayed() {
    let mut service = Service::start().await;
    let request = || preferring(&service, Operation::ListPets, "delay=2000").send();
    let mut delayed = tokio::spawn(request());
    until(async || {
        if delayed.is_finished() {
            delayed = tokio::spawn(request());
        }
        service.metrics().await.metric("petstore_http_requests_in_flight") == 2.0
    })
    .await;
    service.ask_to_stop(bounded_http::Stop::Drain);
    soon(service.stopped()).await;
    assert_eq!(delayed.await.unwrap().status(), 200, "a drain waits for the response");
}
