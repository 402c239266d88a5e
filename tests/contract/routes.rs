//! What the document shows is what the service does: its examples are sent, and its answers compared.

use serde_json::{Value, json};

use crate::support::{Answer, Request, Service, Setup};

#[tokio::test]
async fn each_operation_answers_its_own_example() {
    let service = Service::start().await;
    let document = service.get("/openapi.json").await.json();
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    for operation in operations(&document) {
        let answer = operation.request(&service).key(&service.key).json(operation.body()).send().await;
        let documented = operation.response(&document, answer.status());
        assert!((200..300).contains(&answer.status()), "{}: {}", operation.name(), answer.shown());
        has_the_required_headers(&answer, &documented, &document);
        let shown = &documented["content"]["application/json"]["example"];
        assert_eq!(kind(&answer.json()), kind(shown), "{}", operation.name());
    }
}

#[tokio::test]
async fn the_examples_of_errors_are_what_the_service_says() {
    let service = Service::start().await;
    let document = service.get("/openapi.json").await.json();
    for operation in operations(&document) {
        for status in operation.value["responses"].as_object().unwrap().keys().filter(|status| status.as_str() >= "400")
        {
            let documented = operation.response(&document, status.parse().unwrap());
            let examples = documented["content"]["application/json"]["examples"].as_object().unwrap();
            for (code, example) in examples {
                let Some(request) = operation.refused_for(code, &service) else { continue };
                let answer = request.send().await;
                assert_eq!(answer.json(), example["value"], "{} {code}", operation.name());
                has_the_required_headers(&answer, &documented, &document);
            }
        }
    }
}

#[tokio::test]
async fn what_the_document_says_of_the_rate_limit_is_what_a_service_with_one_does() {
    // As the example says.
    let limit = petstore::config::RateLimit::parse("600/min").ok();
    let service = Service::start_with(Setup { rate_limit: limit, ..Setup::default() }).await;
    let document = service.get("/openapi.json").await.json();
    let account = service.account;
    while service.api.rate_limits.as_ref().unwrap().take(account).is_allowed {}
    for operation in operations(&document) {
        let documented = operation.response(&document, 429);
        let answer = operation.request(&service).key(&service.key).json(operation.body()).send().await;
        let example = &documented["content"]["application/json"]["examples"]["rate_limited"]["value"];
        assert_eq!(answer.json(), *example, "{}", operation.name());
        has_the_required_headers(&answer, &documented, &document);
        for (name, value) in [("RateLimit-Policy", r#""default";q=600;w=60"#), ("RateLimit", r#""default";r=0;t=1"#)] {
            assert!(documented["headers"].get(name).is_some(), "{name}: {documented}");
            assert_eq!(answer.header(name), Some(value), "{}", operation.name());
        }
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

    /// A request to this operation's address, without key and body.
    fn request(&self, service: &Service) -> Request {
        self.request_with(service, &self.method, "1", "")
    }

    fn request_with(&self, service: &Service, method: &str, id: &str, query: &str) -> Request {
        let door = if self.path == "/messages" { service.messages_address } else { service.store_address };
        Request::new(door, method, &format!("/v1{}{query}", self.path.replace("{petId}", id)))
    }

    /// The example of its body, or nothing where it takes none.
    fn body(&self) -> String {
        match self.value.pointer("/requestBody/content/application~1json/example") {
            Some(example) => example.to_string(),
            None => String::new(),
        }
    }

    /// A request that is refused with `code`, or nothing where a request alone can't bring that about.
    fn refused_for(&self, code: &str, service: &Service) -> Option<Request> {
        let with_key = || self.request(service).key(&service.key);
        let query = |query| self.request_with(service, &self.method, "1", query).key(&service.key);
        Some(match code {
            "invalid_json" => with_key().json("[]"),
            "missing_field" => with_key().json("{}"),
            "invalid_value" if self.method == "POST" => {
                let mut body: Value = serde_json::from_str(&self.body()).unwrap();
                *body.as_object_mut().unwrap().values_mut().next().unwrap() = json!(null);
                with_key().json(body.to_string())
            }
            "invalid_value" => query("?limit=0"),
            "unknown_parameter" => query("?colour=brown").json(self.body()),
            "missing_api_key" => self.request(service),
            "invalid_api_key" => self.request(service).key("pet_test_x"),
            "not_found" => self.request_with(service, &self.method, "404", "").key(&service.key),
            "method_not_allowed" => self.request_with(service, "DELETE", "1", ""),
            "payload_too_large" => with_key().json(" ".repeat(64 * 1024 + 1)),
            "unsupported_media_type" => with_key().header("content-type", "text/plain").body("x"),
            "rate_limited" | "request_timeout" | "internal_error" | "unavailable" => return None,
            other => panic!("no request is known that is refused with {other}"),
        })
    }

    fn response(&self, document: &Value, status: u16) -> Value {
        let response = &self.value["responses"][status.to_string()];
        assert!(response.is_object(), "{} has no {status}", self.name());
        resolved(response, document)
    }
}

fn has_the_required_headers(answer: &Answer, documented: &Value, document: &Value) {
    for (name, header) in documented["headers"].as_object().unwrap() {
        if resolved(header, document)["required"] == true {
            assert!(answer.header(name).is_some(), "{name} is missing: {}", answer.shown());
        }
    }
}

/// What a reference points to, or the value itself.
fn resolved(value: &Value, document: &Value) -> Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap().clone(),
        None => value.clone(),
    }
}

/// The names and types of a value, without what it says.
fn kind(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), kind(value))).collect(),
        Value::Array(items) => items.iter().map(kind).collect(),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}
