//! The document, the operation table and the service agree on every path, method, parameter, status and header.

use std::collections::{BTreeMap, BTreeSet};

use hyper::header::HeaderName;
use petstore::api::{Listener, Operation, RateLimit};
use serde_json::{Value, json};
use testkit::{Request, Response, fields};

use crate::document::{after_removal, production};
use crate::documented::{Documented, operations};
use crate::service::{LARGEST, NOW, REMOVAL, Service, Setup};

/// The header of simulated responses, which `examples.rs` compares with the document.
const SIMULATED: &str = "Preference-Applied";

/// Headers of HTTP itself, which the document leaves out.
const TRANSPORT: [&str; 7] =
    ["cache-control", "connection", "content-length", "content-type", "date", "vary", "x-content-type-options"];

#[test]
fn document_lists_the_operations_of_the_table() {
    for (document, now) in [(production(), NOW), (after_removal(), REMOVAL)] {
        let document: Value = serde_json::from_str(&document).unwrap();
        let mut documented = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let has_own_address = item.get("servers").is_some();
            for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "servers") {
                assert!(operation.get("security").is_none(), "{method} {path}: every operation requires a key");
                let id = operation["operationId"].as_str().unwrap();
                documented.insert((path.as_str(), method.to_uppercase(), id, has_own_address));
            }
        }
        let listed = operations(now).map(|operation| {
            let method = operation.method().to_string();
            (operation.api_path(), method, operation.id(), operation.listener() == Some(Listener::Messages))
        });
        assert_eq!(documented, listed.collect());
    }
}

#[tokio::test]
async fn operations_read_the_documented_parameters() {
    let service = Service::start().await;
    for operation in Documented::all(&service).await {
        let id = operation.id();
        let documented = |place: &str| -> BTreeSet<String> {
            let parameters = operation.value["parameters"].as_array().unwrap();
            let here = parameters.iter().filter(|parameter| parameter["in"] == place);
            here.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
        };
        let templates =
            operation.operation.path().split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(documented("path"), templates.map(str::to_owned).collect(), "{id}");

        // The message names the query parameters that the operation has.
        let example = operation.example();
        let unknown = operation.request(&service, "1", "?colour=brown").json(example.clone()).send().await;
        assert_eq!(unknown.code(), "unknown_parameter", "{id}");
        let message = unknown.json()["message"].as_str().unwrap().to_owned();
        let known = message.split_once("it has ").and_then(|(_, known)| known.strip_suffix('.')).unwrap();
        let known = known.split(", ").filter(|known| *known != "none");
        assert_eq!(documented("query"), known.map(str::to_owned).collect(), "{id}: {message}");

        // An empty key is invalid, if the operation reads it.
        let empty_key = operation.request(&service, "1", "").header("idempotency-key", "\"\"").json(example);
        let rejected = empty_key.send().await.body.contains("`Idempotency-Key` must be");
        let simulated = operation.request(&service, "1", "").header("prefer", "code=503").send().await.status() == 503;
        let read = [("Idempotency-Key", rejected), ("Prefer", simulated)];
        let read = read.into_iter().filter(|(_, is_read)| *is_read).map(|(name, _)| name.to_owned());
        assert_eq!(documented("header"), read.collect(), "{id}");
        let mut parameters = operation.value["parameters"].as_array().unwrap().iter();
        if let Some(key) = parameters.find(|parameter| parameter["name"] == "Idempotency-Key") {
            assert_eq!((&key["required"], &key["x-provisional"]), (&json!(false), &json!(true)), "{id}");
            assert_eq!(key.get("example"), None, "the reference page would send it with every request");
        }
    }
}

#[tokio::test]
async fn operations_read_the_documented_bodies() {
    let service = Service::start().await;
    for operation in Documented::all(&service).await {
        let id = operation.id();
        let send = async |body: &Value| operation.request(&service, "1", "").json(body.to_string()).send().await;
        let schema = operation.value.pointer("/requestBody/content/application~1json/schema");

        let without_body = operation.request(&service, "1", "").send().await;
        assert_eq!(without_body.body.contains("invalid_json"), schema.is_some(), "{id}: {}", without_body.shown());
        let Some(schema) = schema else { continue };

        let example: Value = serde_json::from_str(&operation.example()).unwrap();
        for field in schema["properties"].as_object().unwrap().keys() {
            let (mut null, mut without) = (example.clone(), example.clone());
            null[field] = Value::Null;
            without.as_object_mut().unwrap().shift_remove(field);
            let (null, without) = (send(&null).await, send(&without).await);
            assert!(null.code() == "invalid_value" && null.body.contains(field), "{id} {field}: {}", null.shown());
            let is_required = schema["required"].as_array().unwrap().contains(&json!(field));
            let is_missing = without.body.contains("missing_field") && without.body.contains(field);
            assert_eq!(is_missing, is_required, "{id} {field}: {}", without.shown());
        }
    }
}

#[tokio::test]
async fn responses_are_those_of_the_document() {
    let service =
        Service::start_with(Setup { rate_limit: RateLimit::parse("10000/min").ok(), ..Setup::default() }).await;
    // Examples use identifiers up to 31.
    service.create_pets(31).await;
    // The first order is approved and delivered below, and the second is cancelled. The third allows no transition.
    for pet in 1..=3 {
        assert_eq!(service.post("/v1/store/orders", &format!(r#"{{"petId":{pet}}}"#)).await.status(), 201);
    }
    assert_eq!(service.step(&service.key, 3, "cancel").send().await.status(), 200);
    for operation in Documented::all(&service).await {
        let id = operation.id();
        let mut observed: BTreeMap<String, Vec<Response>> = BTreeMap::new();
        let forbidden = service.forbidden_key(operation.operation).await;
        let forbidden = forbidden.map(|key| service.request_to(operation.operation, "1").key(&key));
        for request in requests(&service, &operation).into_iter().chain(forbidden) {
            let answer = request.send().await;
            observed.entry(answer.status().to_string()).or_default().push(answer);
        }
        let responses = operation.value["responses"].as_object().unwrap();
        let documented: BTreeSet<_> = responses.keys().map(String::as_str).collect();
        assert_eq!(documented, observed.keys().map(String::as_str).chain(rare_statuses(&operation)).collect(), "{id}");
        for (status, response) in responses {
            match observed.get(status) {
                Some(answers) => {
                    has_documented_headers(&operation, status, response, answers);
                    if status.starts_with('2') {
                        has_the_documented_success(&operation, response, answers);
                    } else {
                        has_the_documented_errors(id, response, answers);
                    }
                }
                None => assert_eq!(names(response), headers_of_rare_status(&operation, status), "{id} {status}"),
            }
        }
    }
}

/// Requests that cause every status of `operation` except the rare ones, and each of its errors. Their order matters.
fn requests(service: &Service, operation: &Documented) -> Vec<Request> {
    let id = operation.path_id();
    let example = match operation.example() {
        empty if empty.is_empty() => "{}".to_owned(),
        example => example,
    };
    let mut null: Value = serde_json::from_str(&example).unwrap();
    null.as_object_mut().unwrap().values_mut().take(1).for_each(|field| *field = Value::Null);
    let to = |id, query| operation.request(service, id, query);
    let keyed = |body: String| to(id, "").header("idempotency-key", operation.id()).json(body);
    let mut requests = vec![
        keyed(example.clone()),
        // Replayed, then rejected because the key was used for another body.
        keyed(example.clone()),
        keyed(format!("{example} ")),
        // A conflict, if the operation can be carried out only once.
        to(id, "").json(example.clone()),
        to("3", "").json(example.clone()),
        to("404", "").json(example.replace("31", "404")),
        to(id, "?colour=brown").json(example.clone()),
        to(id, "?limit=1"),
        to(id, "?limit=0"),
        to(id, "").json("["),
        to(id, "").json("[]"),
        to(id, "").json("{}"),
        to(id, "").json(null.to_string()),
        to(id, "").header("host", "two hosts"),
        to(id, "").header("idempotency-key", "\"\"").json(example.clone()),
        to(id, "").json(" ".repeat(LARGEST + 1)),
        to(id, "").header("content-type", "text/plain").body("x"),
        to(id, "").header("content-encoding", "gzip").json(example.clone()),
        service.request_to(operation.operation, id),
        service.request_to(operation.operation, id).key("pet_test_x"),
        Request::new(service.address_of(operation.operation), "DELETE", operation.operation.path()),
    ];
    if operation.operation == Operation::GetPet {
        // As on the day of its removal.
        requests.push(to(id, "").header("prefer", "date=2030-12-05"));
    }
    requests
}

/// The first success has the fields of the example and of the schema. A repeated request with a key gets it again.
fn has_the_documented_success(operation: &Documented, response: &Value, answers: &[Response]) {
    let (id, content) = (operation.id(), &response["content"]["application/json"]);
    let (shown, schema) = (&content["example"], &content["schema"]);
    assert_eq!(kind(&answers[0].json()), kind(shown), "{id}");
    let (schema, shown) = (schema.get("items").unwrap_or(schema), shown.get(0).unwrap_or(shown));
    assert_eq!(fields(&schema["properties"]), fields(shown), "{id}");
    let mut required = schema["required"].as_array().unwrap().iter();
    assert!(required.all(|name| fields(shown).contains(&name.as_str().unwrap())), "{id}");
    if operation.is_post() {
        assert_eq!((&answers[1].body, answers[1].is_replayed()), (&answers[0].body, true), "{id}");
        assert!(!answers[0].is_replayed(), "{id}");
    }
}

/// Each example of an error is an answer, and each answer has an example of its code.
fn has_the_documented_errors(id: &str, response: &Value, answers: &[Response]) {
    let examples = response["content"]["application/json"]["examples"].as_object().unwrap();
    for answer in answers {
        assert!(examples.contains_key(&answer.code()), "{id} does not document {}", answer.code());
    }
    for (code, example) in examples {
        let is_sent = answers.iter().any(|answer| answer.json() == example["value"]);
        let shown = || answers.iter().map(|answer| &*answer.body).collect::<Vec<_>>().join("\n");
        assert!(is_sent, "{id} sends no {code} as in the document:\n{example}\n{}", shown());
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

fn has_documented_headers(operation: &Documented, status: &str, response: &Value, answers: &[Response]) {
    let id = operation.id();
    for answer in answers {
        let is_specific = |name: &&str| !TRANSPORT.contains(name) && !name.eq_ignore_ascii_case(SIMULATED);
        for name in answer.head.headers.keys().map(HeaderName::as_str).filter(is_specific) {
            assert!(names(response).contains(name), "{id} does not document {name} for {status}: {}", answer.shown());
        }
    }
    for (name, header) in response["headers"].as_object().unwrap().iter().filter(|(name, _)| *name != SIMULATED) {
        let mut has = answers.iter().map(|answer| answer.header(name).is_some());
        let is_sent = match header["required"] == true {
            true => has.all(|has| has),
            // Sent only while a key is in progress.
            false => has.any(|has| has) || (status, name.as_str()) == ("409", "Retry-After"),
        };
        assert!(is_sent, "{id} documents {name} for {status}, but does not send it");
    }
}

/// The statuses that a single request to an idle service does not cause.
fn rare_statuses(operation: &Documented) -> Vec<&'static str> {
    let mut statuses = vec!["408", "429", "500", "503"];
    if operation.is_post() {
        // Another request with the same `Idempotency-Key` is in progress.
        statuses.push("409");
    }
    statuses
}

fn headers_of_rare_status(operation: &Documented, status: &str) -> BTreeSet<String> {
    let mut headers = vec!["x-request-id", "ratelimit-policy", "ratelimit"];
    if ["409", "429", "503"].contains(&status) {
        headers.push("retry-after");
    }
    // A request that did not arrive has no operation.
    if operation.operation == Operation::GetPet && status != "408" {
        headers.extend(["deprecation", "sunset", "link"]);
    }
    headers.into_iter().map(str::to_owned).collect()
}

fn names(response: &Value) -> BTreeSet<String> {
    let names = response["headers"].as_object().unwrap().keys().filter(|name| *name != SIMULATED);
    names.map(|name| name.to_ascii_lowercase()).collect()
}
