//! The journal on the operations listener: the requests of a key's account.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use expect_test::expect;
use petstore::api::Operation;
use petstore::domain::Deployment;
use serde_json::{Value, json};
use testkit::{Request, Response, soon, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::service::{NOW, REX, Service, Setup};
use crate::simulation::preferring;

fn journal(service: &Service, method: &str) -> Request {
    Request::new(service.ops_address, method, "/requests").key(&service.key)
}

async fn read(service: &Service, query: &str, key: &str) -> Response {
    Request::new(service.ops_address, "GET", &format!("/requests{query}")).key(key).send().await
}

async fn requests(service: &Service, query: &str) -> Vec<Value> {
    let answer = read(service, query, &service.key).await;
    assert_eq!(answer.status(), 200, "{}", answer.shown());
    answer.json().as_array().unwrap().clone()
}

#[tokio::test]
async fn journal_has_what_was_sent_and_received() {
    let service = Service::start().await;
    let create = || preferring(&service, Operation::CreatePet, "").header("idempotency-key", "\"once\"").json(REX);
    create().send().await;
    create().send().await;
    preferring(&service, Operation::ListPets, "code=503").send().await;
    service.get("/v1/cats").await;

    let listed = requests(&service, "").await;

    let told = |request: &Value| {
        let names = ["operation", "method", "path", "status", "code", "idempotencyKey", "simulated", "replayed"];
        names.map(|name| request[name].to_string()).join(" ")
    };
    expect![[r#"
        "createPet" "POST" "/v1/pets" 201 null "once" null false
        "createPet" "POST" "/v1/pets" 201 null "once" null true
        "listPets" "GET" "/v1/pets" 503 "unavailable" null "code=503" false
        null "GET" "/v1/cats" 404 "not_found" null null false
    "#]]
    .assert_eq(&listed.iter().map(|request| told(request) + "\n").collect::<String>());
    let first = &listed[0];
    assert_eq!(first["request"]["body"], REX);
    assert_eq!(first["response"]["body"], r#"{"id":1,"name":"Rex","categoryId":3,"status":"available"}"#);
    let head = first["request"]["head"].as_str().unwrap();
    assert!(head.starts_with("POST /v1/pets HTTP/1.1\n") && head.contains("authorization: [hidden]"), "{head}");
    assert_eq!((&first["time"], &first["incomplete"]), (&json!(NOW.to_string()), &json!(false)));
    assert!(first["durationMs"].is_f64() && first["keyId"].is_i64() && first["id"].is_u64());
    assert!(first["response"]["head"].as_str().unwrap().contains(first["requestId"].as_str().unwrap()));
    let dropped = preferring(&service, Operation::ListPets, "drop=body").bytes();
    testkit::raw(service.store_address, &dropped).await;
    assert_eq!(requests(&service, "").await[4]["incomplete"], true);
}

#[tokio::test]
async fn journal_tells_which_requests_were_executed() {
    let service = Service::start().await;
    for (key, preferences, body) in [
        ("a", "drop=response", REX),
        ("a", "drop=response", REX),
        ("a", "drop=reset", REX),
        ("b", "drop=reset", REX),
        ("c", "drop=request", REX),
        ("c", "code=503, drop=response", REX),
        ("c", "drop=response", "{}"),
    ] {
        let request = preferring(&service, Operation::CreatePet, preferences).header("idempotency-key", key).json(body);
        let mut stream = TcpStream::connect(service.store_address).await.unwrap();
        stream.write_all(&request.bytes()).await.unwrap();
        let mut received = Vec::new();
        _ = soon(stream.read_to_end(&mut received)).await;
        assert!(received.is_empty(), "{preferences}");
    }
    let listed = requests(&service, "").await;
    let told = listed.iter().map(|request| {
        let texts = ["status", "replayed", "incomplete", "simulated"].map(|name| request[name].to_string());
        assert_eq!((&request["response"]["head"], &request["response"]["body"]), (&json!(""), &json!("")));
        texts.join(" ") + "\n"
    });
    expect![[r#"
        201 false true "drop=response"
        201 true true "drop=response"
        201 true true "drop=reset"
        201 false true "drop=reset"
        null false true "drop=request"
        503 false true "code=503, drop=response"
        400 false true "drop=response"
    "#]]
    .assert_eq(&told.collect::<String>());
    assert_eq!(service.store.count_pets().await.unwrap(), 2);
}

#[tokio::test]
async fn journal_tells_what_a_client_did_not_wait_for() {
    let service = Service::start().await;
    // Two requests with each key. A connection that closes before the delay is listed without a status.
    let attempts = AtomicU32::new(0);
    until(async || {
        let key = attempts.fetch_add(1, Ordering::Relaxed) / 2;
        let delayed = preferring(&service, Operation::CreatePet, "delay=30000");
        let delayed = delayed.header("idempotency-key", &key.to_string());
        let mut stream = TcpStream::connect(service.store_address).await.unwrap();
        stream.write_all(&delayed.json(REX).bytes()).await.unwrap();
        _ = timeout(Duration::from_millis(50 << key), stream.read_u8()).await;
        drop(stream);
        let listed = requests(&service, "").await;
        let told = |is_replayed: bool| {
            let is_told = |it: &Value| it["status"] == 201 && it["replayed"] == is_replayed && it["incomplete"] == true;
            listed.iter().any(is_told)
        };
        told(false) && told(true)
    })
    .await;
}

#[tokio::test]
async fn journal_shows_the_idempotency_key_as_the_api_reads_it() {
    let service = Service::start().await;
    for (sent, read) in [("abc\"", json!("abc\"")), (r#""a\"b""#, json!("a\"b")), ("a b", Value::Null)] {
        preferring(&service, Operation::CreatePet, "").header("idempotency-key", sent).json(REX).send().await;
        assert_eq!(requests(&service, "").await.last().unwrap()["idempotencyKey"], read, "{sent}");
    }
}

#[tokio::test]
async fn journal_is_filtered_and_emptied() {
    let service = Service::start().await;
    let (id, another) = service.another_key(None).await;
    service.get("/v1/pets").await;
    service.request("GET", "/v1/pets/9").key(&another).send().await;
    let of_key = format!("?keyId={}", id.0);
    for (query, count) in [
        ("?operation=getPet", 1),
        ("?status=200", 1),
        ("?status=404&operation=listPets", 0),
        (&of_key, 1),
        ("?since=2026-11-20T09:30:00.123Z", 2),
        ("?since=2026-11-20T09:30:01Z", 0),
    ] {
        assert_eq!(requests(&service, query).await.len(), count, "{query}");
    }
    for (query, message) in [
        ("?operation=getMetrics", "`operation` must be an operation of the API, such as listPets."),
        ("?since=yesterday", "`since` must be a time such as 2026-11-20T09:30:00.123Z."),
        ("?status=4xx", "`status` must be an integer: digits with an optional minus sign, within 64 bits."),
    ] {
        let answer = read(&service, query, &service.key).await;
        assert_eq!((answer.code().as_str(), &answer.json()["message"]), ("invalid_value", &json!(message)));
    }
    assert_eq!(read(&service, "?limit=1", &service.key).await.code(), "unknown_parameter");

    let emptied = journal(&service, "DELETE").send().await;

    assert_eq!((emptied.status(), emptied.body.as_str()), (204, ""));
    assert_eq!(requests(&service, "").await.len(), 0);
}

#[tokio::test]
async fn journal_tells_how_many_requests_are_missing() {
    let service = Service::start().await;
    for _ in 0..103 {
        service.get("/v1/pets").await;
    }
    let answer = read(&service, "", &service.key).await;
    assert_eq!((answer.json().as_array().unwrap().len(), answer.header("requests-dropped")), (100, Some("3")));
    journal(&service, "DELETE").send().await;
    assert_eq!(read(&service, "", &service.key).await.header("requests-dropped"), Some("0"));
}

#[tokio::test]
async fn journal_needs_an_active_key_and_shows_only_its_account() {
    let service = Service::start().await;
    service.get("/v1/pets").await;
    assert_eq!(Request::new(service.ops_address, "GET", "/requests").send().await.code(), "missing_api_key");
    assert_eq!(read(&service, "", "pet_test_wrong").await.code(), "invalid_api_key");
    let (_, other) = service.another_account("grace@example.com").await;
    assert_eq!(read(&service, "", &other).await.body, "[]");
    let (_, reading) = service.reading_key(service.account).await;
    assert_eq!(read(&service, "", &reading).await.json().as_array().unwrap().len(), 1);
    let delete = Request::new(service.ops_address, "DELETE", "/requests").key(&reading);
    assert_eq!(delete.send().await.code(), "forbidden");
    assert_eq!(Request::new(service.messages_address, "GET", "/requests").send().await.code(), "not_found");
}

#[tokio::test]
async fn production_has_no_journal() {
    let service = Service::start_with(Setup { deployment: Deployment::Production, ..Setup::default() }).await;
    for method in ["GET", "DELETE", "POST"] {
        assert_eq!(journal(&service, method).send().await.code(), "not_found", "{method}");
    }
}
