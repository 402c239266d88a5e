//! Promise 10: every operation rejects a request without a valid key before it checks anything else.

use std::net::SocketAddr;
use std::time::Duration;

use petstore::api::Operation;
use petstore::domain::{ApiKey, Deployment};
use testkit::{Request, trial};

use crate::service::{NOW, OPERATOR, Service};

#[tokio::test]
async fn every_operation_checks_the_key_first() {
    let service = Service::start().await;
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.status(), 201);
    let (revoked_id, revoked) = service.another_key(None).await;
    assert!(service.store.revoke_key(revoked_id, OPERATOR).await.unwrap());
    let (_, expired) = service.another_key(Some(NOW.plus(Duration::from_secs(1)))).await;
    service.clock.set(NOW.plus(Duration::from_secs(1)));
    let (unknown, elsewhere) = (ApiKey::generate(Deployment::Staging), ApiKey::generate(Deployment::Production));
    let bearer = |key: &str| format!("Bearer {key}");
    let good = bearer(&service.key);
    let mut swapped = service.key.clone().into_bytes();
    swapped.swap(10, 11);
    swapped[12] ^= 1;
    let swapped = String::from_utf8(swapped).unwrap();

    let credentials: Vec<(&str, Vec<String>)> = vec![
        ("missing_api_key", vec![]),
        ("missing_api_key", vec![String::new()]),
        ("missing_api_key", vec![service.key.clone()]),
        ("missing_api_key", vec![good.replace("Bearer", "Basic")]),
        ("missing_api_key", vec![good.replace("Bearer", "Digest")]),
        ("missing_api_key", vec![good.replace("Bearer ", "Bearer")]),
        ("invalid_api_key", vec![bearer("")]),
        ("invalid_api_key", vec![bearer("x")]),
        ("invalid_api_key", vec![bearer(&"x".repeat(20_000))]),
        ("invalid_api_key", vec![bearer("' OR 1=1 --")]),
        ("invalid_api_key", vec![bearer(&swapped)]),
        ("invalid_api_key", vec![format!("{good}x")]),
        ("invalid_api_key", vec![format!("{good},")]),
        ("invalid_api_key", vec![format!("{good}\u{e4}")]),
        ("invalid_api_key", vec![good[..good.len() - 1].into()]),
        ("invalid_api_key", vec![bearer(&format!("\"{}\"", service.key))]),
        ("invalid_api_key", vec![format!("{good} {}", service.key)]),
        ("invalid_api_key", vec![good.replace("pet_test_", "pet-test-")]),
        ("invalid_api_key", vec![good.replace("pet_test_", "")]),
        ("invalid_api_key", vec![format!("{good}, {good}")]),
        ("invalid_api_key", vec![good.to_lowercase().replace("bearer", "Bearer") + "A"]),
        ("invalid_api_key", vec![bearer(unknown.expose())]),
        ("invalid_api_key", vec![bearer(&revoked)]),
        ("invalid_api_key", vec![bearer(&expired)]),
        ("invalid_api_key", vec![bearer(elsewhere.expose())]),
        ("invalid_api_key", vec![good.clone(), good.clone()]),
        ("invalid_api_key", vec![good.clone(), bearer(&revoked)]),
        ("invalid_api_key", vec!["Basic eDp5".into(), good.clone()]),
    ];
    // Checked only after the key.
    let further_faults: [fn(Request) -> Request; 5] = [
        |request| request,
        |request| request.header("content-type", "text/plain").body("x"),
        |request| request.json("{"),
        |request| request.json(vec![b' '; 64 * 1024 + 1]),
        |request| request.header("transfer-encoding", "chunked").body("x"),
    ];
    let document = service.get("/openapi.json").await.json();
    assert!(!document["paths"].to_string().contains("\"security\""), "the document exempts an operation from the key");
    let targets = targets(&service);
    let before = rows(&service);
    let mut sent = 0;
    for (address, method, path) in &targets {
        for (code, lines) in &credentials {
            for add_fault in further_faults {
                let request = add_fault(Request::new(*address, method, path));
                let request = lines.iter().fold(request, |request, line| request.header("authorization", line));
                let response = request.send().await;
                let shown = format!("{method} {path} {lines:?}");
                assert_eq!(response.status(), 401, "{shown}: {}", response.body);
                if *method != "HEAD" {
                    assert_eq!(response.code(), *code, "{shown}");
                }
                assert!(response.header("www-authenticate").is_some(), "{shown}");
                sent += 1;
            }
        }
    }
    assert_eq!(rows(&service), before, "a rejected request had an effect");
    for (address, method, path) in &targets {
        // Control: with a valid key, no operation responds 401.
        let response = Request::new(*address, method, path).key(&service.key).send().await;
        assert_ne!(response.status(), 401, "{method} {path}");
    }
    trial::measured(&format!("{} operations, {sent} requests without a valid key, all 401", targets.len()));
}

/// Each method and path of the API, with 1 as every id.
fn targets(service: &Service) -> Vec<(SocketAddr, &'static str, String)> {
    let targets = Operation::documented().flat_map(|operation| {
        let path = operation.path_of(Some(1));
        let address = service.address_of(operation);
        operation.methods().iter().map(move |method| (address, method.as_str(), path.clone()))
    });
    targets.collect()
}

/// The number of rows in each table.
fn rows(service: &Service) -> Vec<(String, String)> {
    let tables = service.sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
    let count = |table: &str| service.sql(&format!("SELECT count(*) FROM {table}"));
    tables.lines().map(|table| (table.to_owned(), count(table))).collect()
}
