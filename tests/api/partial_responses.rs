//! Simulated responses that a proxy sends, that arrive slowly, or that end too early.

use std::time::{Duration, Instant};

use petstore::api::{Operation, RateLimit};
use testkit::{read_to_end, soon};

use crate::service::{Service, Setup};
use crate::transport::Transport;

#[tokio::test]
async fn gateway_errors_are_those_of_a_proxy() {
    let rate_limit = RateLimit::parse("10/min").ok();
    let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
    for (status, title) in [(502, "502 Bad Gateway"), (504, "504 Gateway Timeout")] {
        for operation in [Operation::GetPet, Operation::CreatePet] {
            let request = service.request_to(operation, "1").key(&service.key);
            let answer = request.header("prefer", &format!("code={status}, handling=strict")).send().await;
            assert_eq!(answer.status(), status);
            assert_eq!(answer.header("preference-applied"), Some(&*format!("code={status}")));
            assert_eq!(answer.header("content-type"), Some("text/html"));
            assert_eq!(answer.body, format!("<!doctype html><title>{title}</title><h1>{title}</h1>\n"));
            for of_the_service in ["x-request-id", "ratelimit", "deprecation", "retry-after"] {
                assert_eq!(answer.header(of_the_service), None, "{of_the_service}");
            }
        }
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 0, "nothing is executed");
    let documented = service.request("GET", "/openapi.json").send().await.json();
    assert!(!documented.to_string().contains("\"502\""));
}

#[tokio::test]
async fn cut_body_ends_after_half_of_its_announced_length() {
    for transport in Transport::each(|_| {}).await {
        let mut stream = transport.create("prefer: drop=body\r\n").await;
        // With TLS, this fails without a close notification.
        let text = soon(read_to_end(&mut stream)).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 201") && head.contains("preference-applied: drop=body"), "{head}");
        let whole = r#"{"id":1,"name":"Rex","categoryId":3,"status":"available"}"#;
        assert!(head.contains(&format!("content-length: {}\r\n", whole.len())), "{head}");
        assert_eq!(body, &whole[..whole.len() / 2]);
        assert_eq!(transport.service.store.count_pets().await.unwrap(), 1, "the operation is executed");
    }
}

#[tokio::test]
async fn cut_body_of_a_large_page_ends_after_half_of_it() {
    let service = Service::with_pets(100).await;
    let list = || service.call("GET", "/v1/pets?limit=100").header("connection", "close");
    let whole = list().send().await.body;
    let cut = soon(testkit::raw(service.store_address, &list().header("prefer", "drop=body").bytes())).await;
    assert_eq!(cut.split_once("\r\n\r\n").unwrap().1, &whole[..whole.len() / 2]);
}

#[tokio::test]
async fn paced_body_arrives_whole_and_slowly() {
    let service = Service::with_pets(2).await;
    let list = |preferences| service.call("GET", "/v1/pets").header("prefer", preferences);
    let whole = list("").send().await.body;
    let began = Instant::now();
    let paced = list("pace=200").send().await;
    let expected = Duration::from_secs(whole.len() as u64) / 200;
    assert_eq!((paced.body.as_str(), paced.header("preference-applied")), (whole.as_str(), Some("pace=200")));
    assert_eq!(paced.header("content-length"), Some(&*whole.len().to_string()));
    assert!(began.elapsed() >= expected.mul_f32(0.9), "{:?} for {} bytes", began.elapsed(), whole.len());
}

#[tokio::test]
async fn paced_errors_and_cut_bodies_combine() {
    let service = Service::start().await;
    let preferences = "code=503, pace=100, drop=body, delay=20";
    let request = service.call("GET", "/v1/pets").header("connection", "close").header("prefer", preferences);
    let text = soon(testkit::raw(service.store_address, &request.bytes())).await;
    assert!(text.starts_with("HTTP/1.1 503") && text.contains(preferences), "{text}");
    assert!(text.ends_with("cannot pr"), "{text}");
}
