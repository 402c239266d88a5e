//! The service responds as the examples of the document show.

use petstore::api::Operation;
use serde_json::{Value, json};
use testkit::{Request, Response};

use crate::documented::Documented;
use crate::service::{LARGEST, Service, Setup};

#[tokio::test]
async fn operations_respond_as_their_examples() {
    let service = Service::start().await;
    animals(&service, "available").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    for operation in Documented::all(&service).await {
        let answer = operation.request(&service, operation.path_id(), "").json(operation.example()).send().await;
        let documented = operation.response(answer.status());
        assert!((200..300).contains(&answer.status()), "{}: {}", operation.id(), answer.shown());
        has_the_required_headers(&answer, documented);
        let shown = &documented["content"]["application/json"]["example"];
        assert_eq!(kind(&answer.json()), kind(shown), "{}", operation.id());

        let schema = &documented["content"]["application/json"]["schema"];
        let (schema, shown) = (schema.get("items").unwrap_or(schema), shown.get(0).unwrap_or(shown));
        let fields: Vec<_> = shown.as_object().unwrap().keys().collect();
        assert_eq!(schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), fields, "{}", operation.id());
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|name| fields.contains(&&name.as_str().unwrap().to_owned())), "{}", operation.id());
    }
}

#[tokio::test]
async fn posts_are_replayed_with_an_idempotency_key() {
    let service = Service::start().await;
    animals(&service, "available").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    for operation in Documented::all(&service).await.iter().filter(|operation| operation.is_post()) {
        let parameters = operation.value["parameters"].as_array().unwrap();
        let key = parameters.iter().find(|parameter| parameter["name"] == "Idempotency-Key").expect("POST takes a key");
        assert_eq!(
            (&key["in"], &key["required"], &key["x-provisional"]),
            (&json!("header"), &json!(false), &json!(true))
        );
        assert_eq!(key.get("example"), None, "the reference page would send it with every request");

        let request = || {
            let request =
                operation.request(&service, operation.path_id(), "").header("idempotency-key", operation.id());
            request.json(operation.example())
        };
        let (first, again) = (request().send().await, request().send().await);
        assert_eq!((again.status(), &again.body), (first.status(), &first.body), "{}", operation.id());
        let documented = operation.response(again.status());
        assert!(documented["headers"]["Idempotent-Replayed"].is_object(), "{}", operation.id());
        assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
        for status in [409, 422] {
            operation.response(status);
        }
    }
}

#[tokio::test]
async fn error_examples_match_the_service() {
    let service = Service::start().await;
    // Examples order animal 31, which is sold. The first order is cancelled, so it allows no transition.
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    animals(&service, "sold").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    service.request("POST", "/v1/store/orders/1/cancel").key(&service.key).send().await;
    for operation in Documented::all(&service).await {
        use_key(&operation, &service).await;
        let forbidden = service.forbidden_key(operation.operation).await;
        for status in operation.value["responses"].as_object().unwrap().keys().filter(|status| status.as_str() >= "400")
        {
            let documented = operation.response(status.parse().unwrap());
            let examples = documented["content"]["application/json"]["examples"].as_object().unwrap();
            for (code, example) in examples {
                let request = match &forbidden {
                    Some(key) if code == "forbidden" => Some(service.request_to(operation.operation, "1").key(key)),
                    _ => rejected_with(code, &operation, &service),
                };
                let Some(request) = request else { continue };
                let answer = request.send().await;
                assert_eq!(answer.json(), example["value"], "{} {code}", operation.id());
                has_the_required_headers(&answer, documented);
            }
        }
    }
}

#[tokio::test]
async fn simulated_errors_match_their_examples() {
    let service = Service::start().await;
    for operation in Documented::all(&service).await {
        for (status, response) in operation.value["responses"].as_object().unwrap() {
            assert!(response["headers"]["Preference-Applied"].is_object(), "{} {status}", operation.id());
            let examples = response["content"]["application/json"]["examples"].as_object();
            for (code, example) in examples.into_iter().flatten() {
                let preference = format!("error={code}");
                let answer = operation.request(&service, "1", "").header("prefer", &preference).send().await;
                assert_eq!(answer.json(), example["value"], "{} {code}", operation.id());
                assert_eq!(answer.header("preference-applied"), Some(&*preference), "{}", operation.id());
                has_the_required_headers(&answer, response);
            }
        }
    }
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

/// Adds 31 animals, because the examples use identifiers up to 31.
async fn animals(service: &Service, status: &str) {
    for _ in 0..31 {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":3,"status":"{status}"}}"#)).await;
    }
}

/// Sends the example with the operation's name as its `Idempotency-Key`, if that succeeds.
async fn use_key(operation: &Documented, service: &Service) {
    if matches!(operation.operation, Operation::CreatePet | Operation::SendMessage) {
        let request = operation.request(service, "1", "").header("idempotency-key", operation.id());
        let answer = request.json(operation.example()).send().await;
        assert!((200..300).contains(&answer.status()), "{}: {}", operation.id(), answer.shown());
    }
}

/// A request that is rejected with `code`. `None` if a single request cannot cause that error.
fn rejected_with(code: &str, operation: &Documented, service: &Service) -> Option<Request> {
    let with_query = |query| operation.request(service, "1", query);
    let with_key = || with_query("");
    let is_order = operation.operation.path().starts_with("/v1/store/");
    Some(match code {
        "invalid_json" => with_key().json("[]"),
        "missing_field" => with_key().json("{}"),
        "invalid_value" if operation.is_post() && operation.example().is_empty() => {
            with_key().header("idempotency-key", "\"\"")
        }
        "invalid_value" if operation.is_post() => {
            let mut body: Value = serde_json::from_str(&operation.example()).unwrap();
            *body.as_object_mut().unwrap().values_mut().next().unwrap() = json!(null);
            with_key().json(body.to_string())
        }
        "invalid_value" if operation.has_query_parameters() => with_query("?limit=0"),
        "invalid_value" => with_key().header("host", "two hosts"),
        "unknown_parameter" => with_query("?colour=brown").json(operation.example()),
        "missing_api_key" => service.request_to(operation.operation, "1"),
        "invalid_api_key" => service.request_to(operation.operation, "1").key("pet_test_x"),
        "not_found" if operation.operation == Operation::PlaceOrder => with_key().json(r#"{"petId":404}"#),
        "not_found" => operation.request(service, "404", ""),
        "method_not_allowed" => {
            Request::new(service.address_of(operation.operation), "DELETE", operation.operation.path())
        }
        "operation_removed" => with_key().header("prefer", "date=2030-12-05"),
        "payload_too_large" => with_key().json(" ".repeat(LARGEST + 1)),
        "unsupported_media_type" => with_key().header("content-type", "text/plain").body("x"),
        "conflict" if is_order => with_key().json(operation.example()),
        // An order that is rejected stores no response.
        "idempotency_key_reused" if is_order => return None,
        "idempotency_key_reused" => {
            with_key().header("idempotency-key", operation.id()).json(format!("{} ", operation.example()))
        }
        // A key in progress takes a second process.
        "conflict" | "rate_limited" | "request_timeout" | "internal_error" | "unavailable" => return None,
        other => panic!("no request is known to be rejected with {other}"),
    })
}

fn has_the_required_headers(answer: &Response, documented: &Value) {
    for (name, header) in documented["headers"].as_object().unwrap() {
        if header["required"] == true {
            assert!(answer.header(name).is_some(), "{name} is missing: {}", answer.shown());
        }
    }
}

/// The names and types of a value, without its contents and repetitions.
fn kind(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), kind(value))).collect(),
        Value::Array(items) => {
            let mut kinds: Vec<_> = items.iter().map(kind).collect();
            kinds.dedup();
            json!(kinds)
        }
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}
