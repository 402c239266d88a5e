//! Promise 10: there is no way around the key. The operations are those of the served document, so that a new one is
//! tried without anybody thinking of it.

use std::time::Duration;

use petstore::domain::{ApiKey, Deployment};
use testkit::{Request, trial};

use crate::service::{NOW, Service};

struct Operation {
    method: String,
    path: String,
}

#[tokio::test]
async fn every_operation_checks_the_key_first() {
    let service = Service::start().await;
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.status(), 201);
    let (revoked_id, revoked) = service.another_key(None).await;
    assert!(service.store.revoke_key(revoked_id, NOW).await.unwrap());
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
    let operations = operations(&service).await;
    let before = rows(&service);
    let mut tried = 0;
    for operation in &operations {
        for (code, lines) in &credentials {
            for wrong in wrongs() {
                let request = wrong(operation.request(&service));
                let request = lines.iter().fold(request, |request, line| request.header("authorization", line));
                let answer = request.send().await;
                let shown = format!("{} {} {lines:?}", operation.method, operation.path);
                assert_eq!(answer.status(), 401, "{shown}: {}", answer.body);
                if operation.method != "HEAD" {
                    assert_eq!(answer.code(), *code, "{shown}");
                }
                assert!(answer.header("www-authenticate").is_some(), "{shown}");
                tried += 1;
            }
        }
    }
    assert_eq!(rows(&service), before, "something was done all the same");
    for operation in &operations {
        // The control: with a key none of them is refused for want of one.
        let answer = operation.request(&service).key(&service.key).send().await;
        assert_ne!(answer.status(), 401, "{} {}", operation.method, operation.path);
    }
    trial::measured(&format!("{} operations, {tried} requests without a right to them, all 401", operations.len()));
}

/// What else may be wrong with a request: none of it shows before the key is right.
fn wrongs() -> [fn(Request) -> Request; 5] {
    [
        |request| request,
        |request| request.header("content-type", "text/plain").body("x"),
        |request| request.json("{"),
        |request| request.json(vec![b' '; 64 * 1024 + 1]),
        |request| request.header("transfer-encoding", "chunked").body("x"),
    ]
}

/// The operations of the served document; where there is a GET there is a HEAD.
async fn operations(service: &Service) -> Vec<Operation> {
    let document = service.get("/openapi.json").await.json();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in
            item.as_object().unwrap().iter().filter(|(_, value)| value["operationId"].is_string())
        {
            assert!(operation["security"].is_null(), "{path} {method} says that it needs no key");
            let mut add = |method: &str| operations.push(Operation { method: method.into(), path: path.clone() });
            add(&method.to_uppercase());
            if method == "get" {
                add("HEAD");
            }
        }
    }
    assert!(operations.len() >= 6, "the document lists too little");
    operations
}

impl Operation {
    fn request(&self, service: &Service) -> Request {
        let door = if self.path == "/messages" { service.messages_address } else { service.store_address };
        // Whatever a template asks for, its id may be 1.
        let parts = self.path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = format!("/v1{}", parts.collect::<Vec<_>>().join("/"));
        Request::new(door, &self.method, &path)
    }
}

/// How many rows each table has.
fn rows(service: &Service) -> Vec<(String, i64)> {
    let database = service.database();
    let mut tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let count = |table: &String| database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
    tables.map(|table| (table.clone(), count(&table).unwrap())).collect()
}
