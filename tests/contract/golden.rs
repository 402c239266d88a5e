//! The document as a whole, for a person to read in a diff.

use expect_test::expect_file;
use petstore::config::{Addresses, BaseUrl, Scheme};
use petstore::domain::{Deployment, Timestamp};
use petstore::http::openapi::document;
use serde_json::Value;

use crate::support::NOW;

/// 2030-12-05T00:00:00Z, when `getPet` is removed.
const REMOVAL: Timestamp = Timestamp::from_milliseconds(1_922_659_200_000);

/// The document of a production service that was told all three public addresses.
pub fn production(now: Timestamp) -> String {
    document(&addresses(), Deployment::Production, now)
}

pub fn after_removal() -> String {
    production(REMOVAL)
}

/// The document of a service whose addresses are the ones bound.
pub fn staging() -> String {
    let bound = BaseUrl::of_bound(Scheme::Http, ([127, 0, 0, 1], 8081).into());
    let own = BaseUrl::of_bound(Scheme::Http, addresses().store_bound);
    let addresses = Addresses { base_url: own, messages_base_url: bound, staging_base_url: None, ..addresses() };
    document(&addresses, Deployment::Staging, NOW)
}

fn addresses() -> Addresses {
    Addresses {
        base_url: BaseUrl::parse("https://api.petstore.example/v1").unwrap(),
        messages_base_url: BaseUrl::parse("https://messages.petstore.example/v1").unwrap(),
        staging_base_url: Some(BaseUrl::parse("https://staging.petstore.example/v1").unwrap()),
        cors_origins: Vec::new(),
        scheme: Scheme::Http,
        store_bound: ([127, 0, 0, 1], 8080).into(),
    }
}

#[test]
fn the_document_is_the_one_in_docs() {
    // The same as `petstore openapi` with --base-url, --messages-base-url and --staging-base-url.
    expect_file!["../../docs/openapi.json"].assert_eq(&production(NOW));
}

#[test]
fn the_removal_takes_the_operation_and_nothing_else() {
    let before: Value = serde_json::from_str(&production(NOW)).unwrap();
    let after: Value = serde_json::from_str(&after_removal()).unwrap();

    let mut expected = before;
    expected["paths"].as_object_mut().unwrap().shift_remove("/pets/{petId}");
    let created = expected.pointer_mut("/paths/~1pets/post/responses/201/headers").unwrap();
    created.as_object_mut().unwrap().shift_remove("Location");
    // Nothing leads there any more.
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
    assert_eq!(after, expected);
}

#[test]
fn the_deployments_appear_as_servers() {
    let servers = |document: &str| {
        let document: Value = serde_json::from_str(document).unwrap();
        let servers = document["servers"].as_array().unwrap().clone();
        servers.iter().map(|server| format!("{} {}", server["description"], server["url"])).collect::<Vec<_>>()
    };
    assert_eq!(
        servers(&production(NOW)),
        [r#""production" "https://api.petstore.example/v1""#, r#""staging" "https://staging.petstore.example/v1""#]
    );
    assert_eq!(servers(&staging()), [r#""staging" "http://127.0.0.1:8080/v1""#]);
}
