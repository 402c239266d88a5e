//! The OpenAPI document: `docs/openapi.json`, with the addresses of this service.

use std::fmt::Display;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::deprecation::REMOVED_AT;
use crate::api::addresses::{Addresses, BaseUrl};
use crate::api::operations::Operation::GetPet;
use crate::domain::{Deployment, Timestamp};

/// The document as it is written: that of a production service with a staging sibling.
const SOURCE: &str = include_str!("../../../docs/openapi.json");

/// A version of the OpenAPI Specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    #[value(name = "3.1")]
    V3_1,
    #[value(name = "3.0")]
    V3_0,
}

/// Returns the document of a service at `addresses`, as of `now`: pretty-printed JSON with a line feed at its end.
pub fn document(addresses: &Addresses, deployment: Deployment, now: Timestamp, version: Version) -> String {
    let mut document = source();
    if now >= REMOVED_AT {
        remove_get_pet(&mut document);
    }
    set_addresses(&mut document, addresses, deployment);
    if version == Version::V3_0 {
        document["openapi"] = json!("3.0.3");
        wrap_references(&mut document);
    }
    let mut text = serde_json::to_string_pretty(&document).expect("a JSON value always encodes");
    text.push('\n');
    text
}

/// Returns the document as it is written.
pub(super) fn source() -> Value {
    serde_json::from_str(SOURCE).expect("docs/openapi.json is JSON")
}

/// Sets the servers, which are the only part of the document that depends on the addresses.
fn set_addresses(document: &mut Value, addresses: &Addresses, deployment: Deployment) {
    let own = server("storeUrl", &addresses.base_url, deployment);
    let sibling = addresses.staging_base_url.as_ref().filter(|_| deployment == Deployment::Production);
    let sibling = sibling.map(|url| server("stagingUrl", url, Deployment::Staging));
    document["servers"] = Value::Array([own].into_iter().chain(sibling).collect());
    let description = format!("{deployment}, messages");
    let messages = json!([server("messagesUrl", &addresses.messages_base_url, description)]);
    let path = object(&mut document["paths"]["/messages"]);
    // Some tools read the servers of a path, others only the servers of an operation.
    for operation in path.values_mut().filter_map(Value::as_object_mut) {
        operation.insert("servers".to_owned(), messages.clone());
    }
    path.insert("servers".to_owned(), messages);
}

/// Returns a server whose address is the default of `variable`, so that a generated client can be pointed at another store.
fn server(variable: &str, url: &BaseUrl, description: impl Display) -> Value {
    // The rules of OWASP require `x-internal`. All clients may use the server.
    json!({
        "url": format!("{{{variable}}}"),
        "description": description.to_string(),
        "variables": { variable: { "default": url.as_str() } },
        "x-internal": false,
    })
}

/// Removes `getPet`, the links to it, and the headers and the example that only its existence explains.
fn remove_get_pet(document: &mut Value) {
    let paths = object(&mut document["paths"]);
    paths.shift_remove(GetPet.api_path());
    object(&mut paths["/pets"]["post"]["responses"]["201"]["headers"]).shift_remove("Location");
    let operations = paths.values_mut().flat_map(|path| object(path).values_mut());
    let responses = operations.filter_map(|operation| operation.get_mut("responses"));
    for response in responses.flat_map(|responses| object(responses).values_mut()) {
        let Some(links) = response.get_mut("links").map(object) else { continue };
        links.retain(|_, link| link["operationId"] != "getPet");
        if links.is_empty() {
            object(response).shift_remove("links");
        }
    }
    object(&mut document["components"]["examples"]).shift_remove("operation_removed");
    let headers = object(&mut document["components"]["headers"]);
    for name in ["Location", "Deprecation", "Sunset", "DeprecationLink"] {
        headers.shift_remove(name);
    }
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("this part of docs/openapi.json is an object")
}

/// Moves references with other fields beside them into `allOf`, because OpenAPI 3.0 ignores these fields. The document uses
/// no other part of 3.1 that 3.0 does not have. A test validates the result.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        Value::Object(fields) => {
            fields.values_mut().for_each(wrap_references);
            if fields.len() > 1
                && let Some(reference) = fields.shift_remove("$ref")
            {
                fields.shift_insert(0, "allOf".to_owned(), json!([{ "$ref": reference }]));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::error::{ApiError, Code};
    use crate::api::input::idempotency;
    use crate::domain::{MessageText, OrderStatus, PageLimit, PetName, PetStatus};
    use bounded_http::BodyTimeout;

    fn at(pointer: &str) -> Value {
        let source: Value = serde_json::from_str(SOURCE).unwrap();
        source.pointer(&format!("/components{pointer}")).unwrap_or_else(|| panic!("no {pointer}")).clone()
    }

    #[test]
    fn source_has_no_duplicate_keys() {
        let (mut in_string, mut is_escaped) = (false, false);
        let compact = SOURCE.chars().filter(|&character| {
            in_string ^= character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            in_string || !character.is_whitespace()
        });
        // Parsing keeps only one of several fields with the same key.
        assert_eq!(compact.collect::<String>(), source().to_string());
    }

    #[test]
    fn limits_and_enumerations_are_those_of_the_code() {
        let default_limit = PageLimit::default().get();
        for (pointer, value) in [
            ("/schemas/PetStatus/enum", json!(PetStatus::ALL.map(PetStatus::as_str))),
            ("/schemas/OrderStatus/enum", json!(OrderStatus::ALL.map(OrderStatus::as_str))),
            ("/parameters/Limit/schema/minimum", json!(PageLimit::ONE.get())),
            ("/parameters/Limit/schema/maximum", json!(PageLimit::MAX)),
            ("/parameters/Limit/schema/default", json!(default_limit)),
            ("/schemas/Pets/maxItems", json!(PageLimit::MAX)),
            ("/schemas/Orders/maxItems", json!(PageLimit::MAX)),
            ("/schemas/Messages/maxItems", json!(PageLimit::MAX)),
            ("/schemas/NewPet/properties/name/maxLength", json!(PetName::MAX_CHARACTERS)),
            ("/schemas/Pet/properties/name/maxLength", json!(PetName::MAX_CHARACTERS)),
            ("/schemas/MessageInput/properties/message/maxLength", json!(MessageText::MAX_CHARACTERS)),
            ("/schemas/Message/properties/message/maxLength", json!(MessageText::MAX_CHARACTERS)),
        ] {
            assert_eq!(at(pointer), value, "{pointer}");
        }
    }

    #[test]
    fn reference_of_version_3_0_stands_alone() {
        let mut value = json!({ "schema": { "$ref": "#/a", "description": "b" }, "items": [{ "$ref": "#/c" }] });
        wrap_references(&mut value);
        let schema = json!({ "allOf": [{ "$ref": "#/a" }], "description": "b" });
        assert_eq!(value, json!({ "schema": schema, "items": [{ "$ref": "#/c" }] }));
    }

    /// `tests/contract` compares the other examples with the responses of a service.
    #[test]
    fn examples_of_errors_that_no_request_causes_are_exact() {
        for (name, error) in [
            ("request_timeout", ApiError::new(Code::RequestTimeout, BodyTimeout.to_string())),
            ("idempotency_key_in_progress", idempotency::in_progress()),
            ("internal_error", ApiError::internal("")),
            ("unavailable", ApiError::unavailable("")),
        ] {
            let body: Value = serde_json::from_slice(&error.body()).unwrap();
            assert_eq!(at(&format!("/examples/{name}/value")), body, "{name}");
        }
    }
}
