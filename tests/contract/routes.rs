//! The service responds as the examples in the document say.

use serde_json::{Value, json};

use crate::document::expanded;
use crate::support::{Answer, Request, Service, Setup};

#[tokio::test]
async fn operations_respond_as_their_examples() {
    let service = Service::start().await;
    let document = expanded(&service.get("/openapi.json").await.json());
    animals(&service, "available").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    for operation in operations(&document) {
        // The first order is delivered by now, so this cancels the one that the example placed.
        let id = if operation.name() == "cancelOrder" { "2" } else { "1" };
        let request = operation.request_with(&service, &operation.method, id, "");
        let answer = request.key(&service.key).json(operation.body()).send().await;
        let documented = operation.response(answer.status());
        assert!((200..300).contains(&answer.status()), "{}: {}", operation.name(), answer.shown());
        has_the_required_headers(&answer, documented);
        let shown = &documented["content"]["application/json"]["example"];
        assert_eq!(kind(&answer.json()), kind(shown), "{}", operation.name());

        let schema = &documented["content"]["application/json"]["schema"];
        let (schema, shown) = (schema.get("items").unwrap_or(schema), shown.get(0).unwrap_or(shown));
        let fields: Vec<_> = shown.as_object().unwrap().keys().collect();
        assert_eq!(
            schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
            fields,
            "{}",
            operation.name()
        );
        assert_eq!(schema["required"], json!(fields), "{}: responses have every field", operation.name());
    }
}

#[tokio::test]
async fn posts_are_replayed_with_an_idempotency_key() {
    let service = Service::start().await;
    let document = expanded(&service.get("/openapi.json").await.json());
    animals(&service, "available").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    let posts = operations(&document).into_iter().filter(|operation| operation.method == "POST");
    for operation in posts {
        let parameters = operation.value["parameters"].as_array().unwrap();
        let key = parameters.iter().find(|parameter| parameter["name"] == "Idempotency-Key").expect("POST takes a key");
        assert_eq!(
            (&key["in"], &key["required"], &key["x-provisional"]),
            (&json!("header"), &json!(false), &json!(true))
        );
        assert_eq!(key.get("example"), None, "the reference page would send it with every request");

        let request = || {
            // The first order is delivered before one is cancelled.
            let id = if operation.name() == "cancelOrder" { "2" } else { "1" };
            let request = operation.request_with(&service, &operation.method, id, "").key(&service.key);
            request.header("idempotency-key", operation.name()).json(operation.body())
        };
        let (first, again) = (request().send().await, request().send().await);
        assert_eq!((again.status(), &again.body), (first.status(), &first.body), "{}", operation.name());
        let documented = operation.response(again.status());
        assert!(documented["headers"]["Idempotent-Replayed"].is_object(), "{}", operation.name());
        assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
        for status in [409, 422] {
            operation.response(status);
        }
    }
}

#[tokio::test]
async fn error_examples_match_the_service() {
    let service = Service::start().await;
    let document = expanded(&service.get("/openapi.json").await.json());
    // Examples order animal 31, which is sold. The first order is cancelled, so it allows no transition.
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    animals(&service, "sold").await;
    service.post("/v1/store/orders", r#"{"petId":1}"#).await;
    service.request("POST", "/v1/store/orders/1/cancel").key(&service.key).send().await;
    for operation in operations(&document) {
        operation.use_a_key(&service).await;
        for status in operation.value["responses"].as_object().unwrap().keys().filter(|status| status.as_str() >= "400")
        {
            let documented = operation.response(status.parse().unwrap());
            let examples = documented["content"]["application/json"]["examples"].as_object().unwrap();
            for (code, example) in examples {
                let Some(request) = operation.rejected_with(code, &service) else { continue };
                let answer = request.send().await;
                assert_eq!(answer.json(), example["value"], "{} {code}", operation.name());
                has_the_required_headers(&answer, documented);
            }
        }
    }
}

#[tokio::test]
async fn rate_limit_headers_match_the_document() {
    // The rate limit of the example.
    let limit = petstore::config::RateLimit::parse("600/min").ok();
    let service = Service::start_with(Setup { rate_limit: limit, ..Setup::default() }).await;
    let document = expanded(&service.get("/openapi.json").await.json());
    let account = service.account;
    while service.api.rate_limits.as_ref().unwrap().take(account).is_allowed {}
    for operation in operations(&document) {
        let documented = operation.response(429);
        let answer = operation.request(&service).key(&service.key).json(operation.body()).send().await;
        let example = &documented["content"]["application/json"]["examples"]["rate_limited"]["value"];
        assert_eq!(answer.json(), *example, "{}", operation.name());
        has_the_required_headers(&answer, documented);
        for (name, value) in [("RateLimit-Policy", r#""default";q=600;w=60"#), ("RateLimit", r#""default";r=0;t=1"#)] {
            assert!(documented["headers"].get(name).is_some(), "{name}: {documented}");
            assert_eq!(answer.header(name), Some(value), "{}", operation.name());
        }
    }
}

/// Adds 31 animals, because the examples use identifiers up to 31.
async fn animals(service: &Service, status: &str) {
    for _ in 0..31 {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":3,"status":"{status}"}}"#)).await;
    }
}

/// An operation of the document.
struct Operation<'d> {
    method: String,
    path: &'d str,
    value: &'d Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, value) in item.as_object().unwrap().iter().filter(|(_, value)| value["operationId"].is_string()) {
            operations.push(Operation { method: method.to_uppercase(), path, value });
        }
    }
    assert!(!operations.is_empty());
    operations
}

impl Operation<'_> {
    fn name(&self) -> &str {
        self.value["operationId"].as_str().unwrap()
    }

    /// A request to this operation without key and body.
    fn request(&self, service: &Service) -> Request {
        self.request_with(service, &self.method, "1", "")
    }

    fn request_with(&self, service: &Service, method: &str, id: &str, query: &str) -> Request {
        let door = if self.path == "/messages" { service.messages_address } else { service.store_address };
        Request::new(door, method, &format!("/v1{}{query}", self.path.replace("{petId}", id).replace("{orderId}", id)))
    }

    /// Sends the example with the operation's name as its `Idempotency-Key`, if it can succeed.
    async fn use_a_key(&self, service: &Service) {
        if self.value["responses"]["422"].is_object() && !self.path.starts_with("/store/") {
            let request = self.request(service).key(&service.key).header("idempotency-key", self.name());
            let answer = request.json(self.body()).send().await;
            assert!((200..300).contains(&answer.status()), "{}: {}", self.name(), answer.shown());
        }
    }

    /// The example of the request body. Empty if the operation takes none.
    fn body(&self) -> String {
        match self.value.pointer("/requestBody/content/application~1json/example") {
            Some(example) => example.to_string(),
            None => String::new(),
        }
    }

    /// A request that is rejected with `code`. `None` if a single request cannot cause that error.
    fn rejected_with(&self, code: &str, service: &Service) -> Option<Request> {
        let with_key = || self.request(service).key(&service.key);
        let query = |query| self.request_with(service, &self.method, "1", query).key(&service.key);
        Some(match code {
            "invalid_json" => with_key().json("[]"),
            "missing_field" => with_key().json("{}"),
            "invalid_value" if self.method == "POST" && self.body().is_empty() => {
                with_key().header("idempotency-key", "\"\"")
            }
            "invalid_value" if self.method == "POST" => {
                let mut body: Value = serde_json::from_str(&self.body()).unwrap();
                *body.as_object_mut().unwrap().values_mut().next().unwrap() = json!(null);
                with_key().json(body.to_string())
            }
            "invalid_value" => query("?limit=0"),
            "unknown_parameter" => query("?colour=brown").json(self.body()),
            "missing_api_key" => self.request(service),
            "invalid_api_key" => self.request(service).key("pet_test_x"),
            "not_found" if self.path == "/store/orders" => with_key().json(r#"{"petId":404}"#),
            "conflict" if self.path.starts_with("/store/") => with_key().json(self.body()),
            "not_found" => self.request_with(service, &self.method, "404", "").key(&service.key),
            "method_not_allowed" => self.request_with(service, "DELETE", "1", ""),
            "payload_too_large" => with_key().json(" ".repeat(64 * 1024 + 1)),
            "unsupported_media_type" => with_key().header("content-type", "text/plain").body("x"),
            "idempotency_key_reused" if self.path.starts_with("/store/") => return None,
            "idempotency_key_reused" => {
                with_key().header("idempotency-key", self.name()).json(format!("{} ", self.body()))
            }
            // A key in progress takes a second process.
            "conflict" | "rate_limited" | "request_timeout" | "internal_error" | "unavailable" => return None,
            other => panic!("no request is known to be rejected with {other}"),
        })
    }

    fn response(&self, status: u16) -> &Value {
        let response = &self.value["responses"][status.to_string()];
        assert!(response.is_object(), "{} does not document {status}", self.name());
        response
    }
}

fn has_the_required_headers(answer: &Answer, documented: &Value) {
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
