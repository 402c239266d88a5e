//! The document as a service with given addresses serves it.

use std::process::Command;

use axum::http::uri::Scheme;
use petstore::api::documents::openapi::{Version, document};
use petstore::api::{Addresses, BaseUrl, Operation};
use petstore::domain::Deployment;
use serde_json::{Value, json};

use crate::documented;
use crate::service::{NOW, REMOVAL};

/// The document of a production service at the addresses in `docs/openapi.json`.
pub fn production() -> String {
    document(&addresses(), Deployment::Production, NOW, Version::V3_1)
}

pub fn after_removal() -> String {
    document(&addresses(), Deployment::Production, REMOVAL, Version::V3_1)
}

/// The document of a staging service without configured addresses.
pub fn staging() -> String {
    let bound = |port| BaseUrl::of_bound(&Scheme::HTTP, ([127, 0, 0, 1], port).into());
    let addresses =
        Addresses { base_url: bound(8080), messages_base_url: bound(8081), staging_base_url: None, ..addresses() };
    document(&addresses, Deployment::Staging, NOW, Version::V3_1)
}

/// The production document in OpenAPI 3.0.
pub fn production_3_0() -> String {
    document(&addresses(), Deployment::Production, NOW, Version::V3_0)
}

fn addresses() -> Addresses {
    Addresses {
        base_url: BaseUrl::parse("https://api.petstore.example/v1").unwrap(),
        messages_base_url: BaseUrl::parse("https://messages.petstore.example/v1").unwrap(),
        staging_base_url: Some(BaseUrl::parse("https://staging.petstore.example/v1").unwrap()),
        cors_origins: Vec::new(),
        security_contacts: Vec::new(),
        scheme: Scheme::HTTP,
        store_bound: ([127, 0, 0, 1], 8080).into(),
    }
}

/// `document` with each reference replaced by its target. Fields beside a reference override those of the target.
pub fn expanded(document: &Value) -> Value {
    expand(document, document)
}

fn expand(value: &Value, document: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| expand(item, document)).collect(),
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str).map(|reference| {
                let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
                expand(target.unwrap_or_else(|| panic!("{reference} does not exist")), document)
            });
            let mut expanded = target.and_then(|target| target.as_object().cloned()).unwrap_or_default();
            let own = fields.iter().filter(|(name, _)| *name != "$ref");
            expanded.extend(own.map(|(name, field)| (name.clone(), expand(field, document))));
            expanded.into()
        }
        other => other.clone(),
    }
}

#[test]
fn source_is_served_unchanged_at_its_own_addresses() {
    let source: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    let served: Value = serde_json::from_str(&production()).unwrap();
    assert_eq!(served, source);
}

/// Generated clients in PHP check values with PCRE, which matches bytes and has no `\u`. They ignore `not`.
#[test]
fn pcre_understands_the_patterns() {
    let document: Value = serde_json::from_str(&production()).unwrap();
    let mut patterns = Vec::new();
    collect_patterns(&document, &mut patterns);
    assert!(patterns.len() > 10, "{patterns:?}");
    for pattern in patterns {
        // 0 if the pattern matches, 1 if it does not, 2 if it is not understood.
        let search = |text: &str| {
            let script = r#"printf %s "$2" | LC_ALL=C grep -qP -e "$1""#;
            Command::new("sh").args(["-c", script, "sh", pattern, text]).status().unwrap().code()
        };
        assert_eq!(search("\u{1}"), Some(1), "{pattern}");
        let is_text = pattern.starts_with("^[^");
        assert_eq!(search("Čeněk à 犬"), Some(i32::from(!is_text)), "{pattern}");
    }
}

fn collect_patterns<'a>(value: &'a Value, patterns: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, patterns)),
        Value::Object(fields) => {
            patterns.extend(fields.get("pattern").and_then(Value::as_str));
            fields.iter().filter(|(name, _)| *name != "not").for_each(|(_, field)| collect_patterns(field, patterns));
        }
        _ => (),
    }
}

/// Otherwise generating a client again, from another store, would change its files.
#[test]
fn documents_of_two_stores_differ_in_server_variables_alone() {
    for file in ["openapi.json", "openapi-3.0.json"] {
        let [one, other] = [(), ()].map(|()| fetched_without_addresses(file));
        assert_eq!(one, other, "{file}");
    }
}

/// Returns the document of a store with ports of its own, and checks and removes the variables that have its addresses.
fn fetched_without_addresses(file: &str) -> Value {
    let script = format!("curl -sf ${{STORE_URL%/v1}}/{file}; echo $STORE_URL $MESSAGES_URL");
    let output = Command::new(testkit::petstore()).args(["ephemeral", "--", "sh", "-c", &script]).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (document, addresses) = output.trim_end().rsplit_once('\n').unwrap();
    let (store, messages) = addresses.split_once(' ').unwrap();
    let mut document: Value = serde_json::from_str(document).unwrap();
    for part in ["", "/paths/~1messages", "/paths/~1messages/get", "/paths/~1messages/post"] {
        let (name, url) = if part.is_empty() { ("storeUrl", store) } else { ("messagesUrl", messages) };
        let server = document.pointer_mut(&format!("{part}/servers/0")).expect("an address");
        assert_eq!(server["url"], format!("{{{name}}}"));
        assert_eq!(server["variables"].take(), json!({ name: { "default": url } }));
    }
    document
}

#[test]
fn removal_drops_the_operation_and_nothing_else() {
    let before: Value = serde_json::from_str(&production()).unwrap();
    let after: Value = serde_json::from_str(&after_removal()).unwrap();

    let mut expected = before;
    expected["paths"].as_object_mut().unwrap().shift_remove("/pets/{petId}");
    let created = expected.pointer_mut("/paths/~1pets/post/responses/201/headers").unwrap();
    created.as_object_mut().unwrap().shift_remove("Location");
    for operation in expected["paths"]
        .as_object_mut()
        .unwrap()
        .values_mut()
        .flat_map(|path| path.as_object_mut().unwrap().values_mut())
    {
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        for response in responses.into_iter().flat_map(|responses| responses.values_mut()) {
            let Some(links) = response.get_mut("links").and_then(Value::as_object_mut) else { continue };
            links.retain(|_, link| link["operationId"] != "getPet");
            if links.is_empty() {
                response.as_object_mut().unwrap().shift_remove("links");
            }
        }
    }
    let headers = expected.pointer_mut("/components/headers").unwrap().as_object_mut().unwrap();
    for header in ["Location", "Deprecation", "Sunset", "DeprecationLink"] {
        headers.shift_remove(header);
    }
    let examples = expected.pointer_mut("/components/examples").unwrap().as_object_mut().unwrap();
    examples.shift_remove("operation_removed");
    assert_eq!(after, expected);
}

#[test]
fn provisional_parts_are_marked() {
    let source: Value = serde_json::from_str(&production()).unwrap();
    let document = expanded(&source);
    for operation in documented::operations(NOW) {
        let documented = &document["paths"][operation.api_path()][operation.method().as_str().to_ascii_lowercase()];
        let is_provisional = operation.api_path().starts_with("/store/") || operation == Operation::ListMessages;
        assert_eq!(documented["x-provisional"] == true, is_provisional, "{operation:?}");
    }
    let parameters = document["paths"]["/pets"]["get"]["parameters"].as_array().unwrap();
    let marked: Vec<_> = parameters.iter().filter(|parameter| parameter["x-provisional"] == true).collect();
    assert_eq!(marked.iter().map(|parameter| &parameter["name"]).collect::<Vec<_>>(), ["after", "Prefer"]);
    assert_eq!(document["components"]["headers"]["NextPageLink"]["x-provisional"], true);
}

#[test]
fn deployments_are_listed_as_servers() {
    let servers = |document: &str| {
        let document: Value = serde_json::from_str(document).unwrap();
        let servers = document["servers"].as_array().unwrap().clone();
        servers.iter().map(|server| format!("{} {}", server["description"], server["variables"])).collect::<Vec<_>>()
    };
    let production = [
        r#""production" {"storeUrl":{"default":"https://api.petstore.example/v1"}}"#,
        r#""staging" {"stagingUrl":{"default":"https://staging.petstore.example/v1"}}"#,
    ];
    assert_eq!(servers(&self::production()), production);
    assert_eq!(servers(&staging()), [r#""staging" {"storeUrl":{"default":"http://127.0.0.1:8080/v1"}}"#]);
}
