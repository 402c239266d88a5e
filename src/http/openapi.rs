//! The OpenAPI 3.1 document: operations and schemas from the code beside them, what they share from here.

mod links;
pub mod schema;
mod shared;

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::deprecation::REMOVED_AT;
use super::error::{ApiError, Code};
use super::state::Api;
use crate::config::{Addresses, BaseUrl};
use crate::domain::{Deployment, OrderStatus, OrderStep, PageLimit, Timestamp};
use shared::{error_content, header};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Animal store",
        version = "1.0.0",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
        description = "Lists, adds, fetches and orders the animals of a store; a getting-started call sends a message.\n\n\
            Every operation needs an API key as a bearer token. Every error has the body `Error`; only what the HTTP \
            parser itself refuses (a malformed request with 400, a URI too long with 414, header fields too large with \
            431) may come without a body and without `X-Request-Id`. Wherever GET is answered, HEAD is too.\n\n\
            A request that is wrong in several ways gets the first answer of this order: route (404), method (405), \
            credential (401), rate limit (429), size and media type of the body (413, 415), syntax and values (400), then the operation.\n\n\
            Bodies may have more fields than are named here; they are ignored. Query parameters may not: one that the \
            operation does not have, or one given twice, is refused.\n\n\
            What carries `x-provisional: true` may change before 2.0."
    ),
    tags(
        (name = "pets", description = "The animals of the store."),
        (name = "store", description = "Orders of animals. Provisional: this part may change before 2.0."),
        (name = "messages", description = "The getting-started call, at an address of its own."),
    ),
    paths(
        super::pets::list, super::pets::create, super::pets::get,
        super::orders::list, super::orders::place,
        super::orders::approve, super::orders::deliver, super::orders::cancel,
        super::messages::send,
    ),
    components(schemas(schema::Error))
)]
struct Document;

/// The document as this process serves it, before and after the removal of its deprecated operation.
#[derive(Debug)]
pub struct Documents {
    before: Bytes,
    after: Bytes,
}

impl Documents {
    pub fn new(addresses: &Addresses, deployment: Deployment) -> Self {
        let before = document(addresses, deployment, REMOVED_AT.minus_one_millisecond());
        let after = document(addresses, deployment, REMOVED_AT);
        Self { before: before.into(), after: after.into() }
    }
}

pub async fn serve(State(api): State<Api>, request: HeaderMap) -> Response {
    let documents = &api.documents;
    let document = if api.clock.now() < REMOVED_AT { &documents.before } else { &documents.after };
    let reached = api.addresses.reached_by(&request);
    if Arc::ptr_eq(&reached, &api.addresses) {
        return ([(CONTENT_TYPE, "application/json")], document.clone()).into_response();
    }
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, at_addresses(document, &api.addresses, &reached)).into_response()
}

/// Replaces the addresses in `document` by those that its client reaches.
fn at_addresses(document: &[u8], own: &Addresses, reached: &Addresses) -> String {
    let root = |url: &BaseUrl| format!("{}/", url.root());
    // The messages address goes first. Its replacement keeps its port, so the second step cannot match it.
    String::from_utf8_lossy(document)
        .replace(&root(&own.messages_base_url), &root(&reached.messages_base_url))
        .replace(&root(&own.base_url), &root(&reached.base_url))
}

/// The document of a service at `addresses`, as of `now`: pretty-printed JSON with a line feed at its end.
pub fn document(addresses: &Addresses, deployment: Deployment, now: Timestamp) -> String {
    let mut document = serde_json::to_value(Document::openapi()).expect("the document is plain data");
    document["info"]["contact"] =
        json!({ "name": "Animal store", "url": format!("{}/docs", addresses.base_url.root()) });
    document["servers"] = servers(addresses, deployment);
    document["security"] = json!([{ "apiKey": [] }]);
    document["components"]["schemas"]["Error"]["properties"]["status"] =
        without_rust_width(document["components"]["schemas"]["Error"]["properties"]["status"].take());
    document["components"]["responses"] = Value::Object(shared::errors());
    document["components"]["headers"] = shared::headers(addresses);
    document["components"]["parameters"] = json!({ "IdempotencyKey": shared::idempotency_key() });
    document["components"]["securitySchemes"] = json!({ "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "API key",
        "description": "An API key: create an account, then generate a key. Keys of production begin with `pet_live_`, of staging with `pet_test_`.",
    }});
    let schemas = document["components"]["schemas"].clone();
    let paths = object(&mut document["paths"]);
    if now >= REMOVED_AT {
        object(&mut paths["/pets/{petId}"]).shift_remove("get");
        paths.retain(|_, path| path.as_object().is_some_and(|operations| !operations.is_empty()));
    }
    for (path, operations) in paths.iter_mut() {
        for (method, operation) in object(operations) {
            if method == "post" {
                accept_keys(operation);
            }
            complete(operation, &schemas, addresses, now);
            if path.starts_with("/store/") {
                operation["x-provisional"] = json!(true);
            }
        }
    }
    paths["/messages"]["servers"] = json!([
        { "url": addresses.messages_base_url.as_str(), "description": format!("{deployment}, messages") }
    ]);
    leave_out_unused_headers(&mut document);
    first(&mut document["info"], &["title", "version", "description"]);
    first(&mut document, &["openapi", "info", "servers", "tags", "paths", "components", "security"]);
    let mut text = serde_json::to_string_pretty(&document).expect("a JSON value always encodes");
    text.push('\n');
    text
}

fn servers(addresses: &Addresses, deployment: Deployment) -> Value {
    let own = json!({ "url": addresses.base_url.as_str(), "description": deployment.as_str() });
    let sibling = addresses.staging_base_url.as_ref().filter(|_| deployment == Deployment::Production);
    let sibling = sibling.map(|url| json!({ "url": url.as_str(), "description": Deployment::Staging.as_str() }));
    Value::Array([own].into_iter().chain(sibling).collect())
}

/// Lets an operation be sent again with the same `Idempotency-Key`.
fn accept_keys(operation: &mut Value) {
    for response in object(&mut operation["responses"]).values_mut() {
        response["headers"]["Idempotent-Replayed"] = header("Idempotent-Replayed");
    }
    let responses = object(&mut operation["responses"]);
    for (status, reference) in shared::key_error_references() {
        match responses.get_mut(&status) {
            // Its own error of the same status.
            Some(own) => {
                let own_description = own["description"].as_str().unwrap_or_default();
                own["description"] = json!(format!("{own_description} {}", shared::STILL_IN_PROGRESS));
            }
            None => _ = responses.insert(status, reference),
        }
    }
    let parameters = object(operation).entry("parameters").or_insert_with(|| json!([]));
    let parameters = parameters.as_array_mut().expect("parameters are a list");
    parameters.push(json!({ "$ref": "#/components/parameters/IdempotencyKey" }));
}

/// Gives an operation what it does not say itself: the errors, the headers, and what follows from its name.
fn complete(operation: &mut Value, schemas: &Value, addresses: &Addresses, now: Timestamp) {
    let name = operation["operationId"].as_str().expect("an operation has a name").to_owned();
    let refusals = error_content(&refusals(operation, schemas));
    let responses = object(&mut operation["responses"]);
    responses.insert("400".into(), json!({ "description": "The request is refused; the message names the field or parameter, what was wrong and what is allowed.", "content": refusals }));
    for (status, example) in [("404", not_found(&name)), ("409", conflict(&name))] {
        if let Some(response) = responses.get_mut(status).filter(|response| response.get("$ref").is_none()) {
            response["content"] = error_content(&[example]);
        }
    }
    responses.extend(shared::error_references());
    responses.sort_keys();
    for response in responses.values_mut().filter(|response| response.get("$ref").is_none()) {
        response["headers"]["X-Request-Id"] = header("X-Request-Id");
        shared::announce_rate_limit(&mut response["headers"]);
    }
    match name.as_str() {
        "listPets" | "listOrders" => responses["200"]["headers"]["Link"] = header("NextPageLink"),
        "createPet" if now < REMOVED_AT => responses["201"]["headers"]["Location"] = header("Location"),
        "getPet" => deprecate(operation, addresses),
        _ => {}
    }
    links::add(object(&mut operation["responses"]), &name, |to| to != "getPet" || now < REMOVED_AT);
    for response in object(&mut operation["responses"]).values_mut() {
        first(response, &["description", "headers", "content"]);
    }
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        if parameter.get("$ref").is_some() {
            continue;
        }
        parameter["schema"] = without_rust_width(parameter["schema"].take());
        match parameter["name"].as_str() {
            Some("limit") => parameter["schema"]["default"] = json!(PageLimit::default().get()),
            // The parameter by which a list goes on is ours, not the interface's.
            Some("after") => parameter["x-provisional"] = json!(true),
            _ => {}
        }
    }
    first(operation, &["operationId", "summary", "description", "tags", "deprecated", "parameters"]);
}

/// The errors with status 400 that an operation answers, in the words it uses. Which these are follows from what it takes.
fn refusals(operation: &Value, schemas: &Value) -> Vec<ApiError> {
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let parameters = parameters.filter(|parameter| parameter["in"] == "query");
    let parameters: Vec<_> = parameters.filter_map(|parameter| parameter["name"].as_str()).collect();
    let mut refusals = Vec::new();
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema/$ref") {
        let schema = schema.as_str().and_then(|reference| reference.rsplit('/').next()).expect("a body has a schema");
        let field = schemas[schema]["required"][0].as_str().expect("a body has a required field");
        let kind = if schemas[schema]["properties"][field]["type"] == "integer" { "an integer" } else { "a string" };
        refusals.extend([
            ApiError::example(Code::InvalidJson),
            ApiError::new(Code::MissingField, format!("The field `{field}` is required.")),
            ApiError::new(Code::InvalidValue, format!("`{field}` must be {kind}, not null.")),
        ]);
    } else if step(operation["operationId"].as_str().unwrap_or_default()).is_some() {
        // A body is not needed; one that is sent is read.
        refusals.push(ApiError::example(Code::InvalidJson));
    } else if parameters.contains(&"limit") {
        refusals.push(ApiError::example(Code::InvalidValue));
    }
    refusals.push(super::input::unknown_parameter("colour", &parameters));
    refusals
}

/// The step that an operation takes an order.
fn step(name: &str) -> Option<OrderStep> {
    OrderStep::parse(name.strip_suffix("Order")?)
}

/// What an operation says of an id that names nothing.
fn not_found(name: &str) -> ApiError {
    step(name).map_or_else(|| ApiError::example(Code::NotFound), |_| super::orders::no_such_order())
}

/// What an operation says where the resource's state does not allow it.
fn conflict(name: &str) -> ApiError {
    let of_step = |step| super::orders::not_now(step, OrderStatus::Cancelled);
    step(name).map_or_else(|| ApiError::example(Code::Conflict), of_step)
}

/// Marks an operation as one to be removed. A shared error becomes its own, since its every answer says so too.
fn deprecate(operation: &mut Value, addresses: &Addresses) {
    operation["deprecated"] = json!(true);
    operation["externalDocs"] = json!({
        "description": "What to use instead, and until when.",
        "url": format!("{}/docs/deprecations", addresses.base_url.root()),
    });
    let shared = shared::errors();
    for (status, response) in object(&mut operation["responses"]) {
        // Another method, or half a request, is answered before the operation is known.
        if status == "405" || status == "408" {
            continue;
        }
        if let Some(name) = response["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
            *response = shared[name].clone();
        }
        response["headers"]["Deprecation"] = header("Deprecation");
        response["headers"]["Sunset"] = header("Sunset");
        response["headers"]["Link"] = header("DeprecationLink");
    }
}

/// The interface gives small integers no width; the one that Rust needs is left out.
fn without_rust_width(mut schema: Value) -> Value {
    if schema["format"] == "int32" {
        object(&mut schema).shift_remove("format");
    }
    schema
}

/// Drops what only an operation that is gone referred to.
fn leave_out_unused_headers(document: &mut Value) {
    let text = document.to_string();
    object(&mut document["components"]["headers"])
        .retain(|name, _| text.contains(&format!("\"#/components/headers/{name}\"")));
}

/// Moves `names` to the front, in this order.
fn first(value: &mut Value, names: &[&str]) {
    let fields = object(value);
    let mut ordered: Map<_, _> =
        names.iter().filter_map(|name| Some(((*name).to_owned(), fields.shift_remove(*name)?))).collect();
    ordered.append(fields);
    *fields = ordered;
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("this part of a document is an object")
}
