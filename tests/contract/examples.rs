//! Simulated errors and those of the rate limit are the examples of the document. `operations.rs` causes the other ones.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::Response;

use crate::documented::Documented;
use crate::service::{Service, Setup};

/// Each error in the table of docs/api.md can be simulated, and `code` simulates the first one of its status.
#[tokio::test]
async fn simulated_errors_match_their_examples() {
    let service = Service::start().await;
    let mut simulated = BTreeSet::new();
    for operation in Documented::all(&service).await {
        for (status, response) in operation.value["responses"].as_object().unwrap() {
            assert!(response["headers"]["Preference-Applied"].is_object(), "{} {status}", operation.id());
            let examples = response["content"]["application/json"]["examples"].as_object();
            for (number, (code, example)) in examples.into_iter().flatten().enumerate() {
                let by_status = (number == 0).then(|| format!("code={status}"));
                for preference in by_status.into_iter().chain([format!("error={code}")]) {
                    let answer = operation.request(&service, "1", "").header("prefer", &preference).send().await;
                    assert_eq!(answer.json(), example["value"], "{} {preference}", operation.id());
                    assert_eq!(answer.header("preference-applied"), Some(&*preference), "{}", operation.id());
                    has_the_required_headers(&answer, response);
                }
                simulated.insert(format!("{code}` | {status}"));
            }
        }
    }
    let rows = include_str!("../../docs/api.md").lines().filter_map(|row| row.strip_prefix("| `")?.rsplit_once(" | "));
    let errors =
        rows.filter(|(row, _)| row.ends_with(|last: char| last.is_ascii_digit())).map(|(row, _)| row.to_owned());
    assert_eq!(simulated, errors.collect());
}

#[tokio::test]
async fn rate_limit_headers_match_the_document() {
    // The rate limit of the example.
    let limit = petstore::api::RateLimit::parse("600/min").ok();
    let service = Service::start_with(Setup { rate_limit: limit, ..Setup::default() }).await;
    let account = service.account;
    while service.api.rate_limits.as_ref().unwrap().take(account).is_allowed {}
    for operation in Documented::all(&service).await {
        let documented = operation.response(429);
        let answer = operation.request(&service, "1", "").json(operation.example()).send().await;
        let example = &documented["content"]["application/json"]["examples"]["rate_limited"]["value"];
        assert_eq!(answer.json(), *example, "{}", operation.id());
        has_the_required_headers(&answer, documented);
        for (name, value) in [("RateLimit-Policy", r#""default";q=600;w=60"#), ("RateLimit", r#""default";r=0;t=1"#)] {
            assert!(documented["headers"].get(name).is_some(), "{name}: {documented}");
            assert_eq!(answer.header(name), Some(value), "{}", operation.id());
        }
    }
}

fn has_the_required_headers(answer: &Response, documented: &Value) {
    for (name, header) in documented["headers"].as_object().unwrap() {
        if header["required"] == true {
            assert!(answer.header(name).is_some(), "{name} is missing: {}", answer.shown());
        }
    }
}
