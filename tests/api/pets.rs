//! `listPets`, `createPet`, `getPet`.

use std::collections::BTreeSet;

use expect_test::expect;
use petstore::config::BaseUrl;
use serde_json::{Value, json};
use testkit::Response;

use crate::service::{Service, Setup};

#[tokio::test]
async fn created_animal_is_listed_and_found() {
    let service = Service::start().await;

    let created = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    expect![[r#"
        201 Created
        content-type: application/json
        location: http://HOST/v1/pets/1

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&created.shown());

    expect![[r#"
        200 OK
        content-type: application/json

        [{"id":1,"name":"Rex","categoryId":3,"status":"available"}]
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());

    expect![[r#"
        200 OK
        content-type: application/json
        deprecation: @1795132800
        sunset: Thu, 05 Dec 2030 00:00:00 GMT
        link: <http://HOST/docs/deprecations>; rel="deprecation", <http://HOST/v1/pets>; rel="successor-version"

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&service.get("/v1/pets/1").await.shown());
}

#[tokio::test]
async fn empty_store_lists_no_animals() {
    let service = Service::start().await;
    expect![[r#"
        200 OK
        content-type: application/json

        []
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());
}

#[tokio::test]
async fn animal_keeps_its_initial_status() {
    let service = Service::start().await;
    for (id, status) in (1..).zip(["available", "pending", "sold"]) {
        let body = json!({ "name": "Rex", "categoryId": 3, "status": status });
        let created = service.post("/v1/pets", &body.to_string()).await;
        assert_eq!((created.status(), created.json()["status"].as_str()), (201, Some(status)));
        assert_eq!(service.get(&format!("/v1/pets/{id}")).await.json()["status"], status);
    }
}

#[tokio::test]
async fn values_are_returned_unchanged() {
    let service = Service::start().await;
    let longest = "🦊".repeat(255);
    let names = [" Rex ", "\"Rex\" \\ / <b>", "ß\u{2028}\u{feff}e\u{301}", "x", "null", &longest];
    let categories = [i64::MIN, -1, 0, 9_007_199_254_740_993, i64::MAX, 7];
    for (name, category) in names.into_iter().zip(categories) {
        let sent = json!({ "name": name, "categoryId": category });
        let created = service.post("/v1/pets", &sent.to_string()).await;
        assert_eq!(created.status(), 201, "{name}: {}", created.body);
        let expected =
            json!({ "id": created.json()["id"], "name": name, "categoryId": category, "status": "available" });
        assert_eq!(created.json(), expected);
        assert_eq!(service.get(&format!("/v1/pets/{}", expected["id"])).await.json(), expected);
        assert!(service.get("/v1/pets").await.json().as_array().unwrap().contains(&expected), "{name}");
    }
}

#[tokio::test]
async fn returned_pet_can_be_posted_as_a_new_one() {
    let service = Service::start().await;
    let first = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3,"status":"sold"}"#).await;

    let second = service.post("/v1/pets", &first.body).await;
    assert_eq!(second.status(), 201);
    assert_eq!(second.json(), json!({ "id": 2, "name": "Rex", "categoryId": 3, "status": "sold" }));
}

#[tokio::test]
async fn ids_start_at_1_and_are_unique_under_concurrency() {
    let service = Service::start().await;
    let bodies: Vec<_> = (0..20).map(|n| format!(r#"{{"name":"n{n}","categoryId":{n}}}"#)).collect();
    let created = futures_util::future::join_all(bodies.iter().map(|body| service.post("/v1/pets", body))).await;

    let given: BTreeSet<_> = created.iter().map(|answer| answer.json()["id"].as_i64().unwrap()).collect();
    assert_eq!(given, (1..=20).collect());
    for answer in created {
        let pet = answer.json();
        assert_eq!(pet["name"], format!("n{}", pet["categoryId"]), "an answer is that of its own request");
        assert_eq!(service.get(&format!("/v1/pets/{}", pet["id"])).await.json(), pet);
    }
}

#[tokio::test]
async fn rejected_animal_uses_no_id() {
    let service = Service::start().await;
    assert_eq!(service.post("/v1/pets", r#"{"name":"","categoryId":3}"#).await.code(), "invalid_value");
    assert_eq!(service.get("/v1/pets").await.json(), json!([]));
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.json()["id"], 1);
}

#[tokio::test]
async fn ids_stay_below_2_to_the_53() {
    let service = Service::start().await;
    let last = (1_i64 << 53) - 1;
    let sql = format!("INSERT INTO pets (id, name, category_id, status) VALUES ({}, 'Rex', 3, 0)", last - 1);
    service.database().execute_batch(&sql).unwrap();

    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.json()["id"], last);
    assert_eq!(service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await.code(), "internal_error");
    assert_eq!(service.get("/v1/pets").await.json().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn accounts_share_all_animals() {
    let service = Service::start().await;
    let (_, other) = service.another_account("grace@example.com").await;
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;

    let added = service.request("POST", "/v1/pets").key(&other).json(r#"{"name":"Tom","categoryId":4}"#).send().await;
    assert_eq!(added.json()["id"], 2);
    for key in [&service.key, &other] {
        let list = service.request("GET", "/v1/pets").key(key).send().await;
        assert_eq!(names(&list), ["Rex", "Tom"]);
    }
}

#[tokio::test]
async fn unknown_animal_is_not_found() {
    let service = Service::start().await;
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    for id in ["2", "0", "-1", "9223372036854775807", "-9223372036854775808"] {
        let answer = service.get(&format!("/v1/pets/{id}")).await;
        assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{id}");
    }
}

#[tokio::test]
async fn id_outside_int64_is_not_found() {
    let service = Service::start().await;
    service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    let ids =
        ["abc", "1.0", "+1", "1e0", "0x1", "%201", "1%20", "--1", "-", "%D9%A1", "%FF", "1,", "9223372036854775808"];
    for id in ids {
        let answer = service.get(&format!("/v1/pets/{id}")).await;
        assert_eq!((answer.status(), answer.code().as_str()), (404, "not_found"), "{id}");
    }
}

#[tokio::test]
async fn page_has_20_animals_by_default() {
    let service = with_animals(101, Setup::default()).await;
    for (query, expected) in
        [("", 20), ("?", 20), ("?limit=1", 1), ("?limit=20", 20), ("?limit=100", 100), ("?limit=%35", 5)]
    {
        let list = service.get(&format!("/v1/pets{query}")).await;
        assert_eq!(ids(&list), (1..=expected).collect::<Vec<_>>(), "{query}");
    }
}

#[tokio::test]
async fn status_filters_animals() {
    let service = with_animals(9, Setup::default()).await;
    for (status, expected) in [("available", [1, 4, 7]), ("pending", [2, 5, 8]), ("sold", [3, 6, 9])] {
        let list = service.get(&format!("/v1/pets?status={status}")).await;
        assert_eq!(ids(&list), expected, "{status}");
        assert!(list.json().as_array().unwrap().iter().all(|pet| pet["status"] == status));
        assert_eq!(list.header("link"), None);
    }
}

#[tokio::test]
async fn after_returns_the_animals_behind_an_id() {
    let service = with_animals(5, Setup::default()).await;
    for (query, expected) in [
        ("after=0", vec![1, 2, 3, 4, 5]),
        ("after=-9223372036854775808", vec![1, 2, 3, 4, 5]),
        ("after=3", vec![4, 5]),
        ("after=3&limit=1", vec![4]),
        ("status=pending&after=2", vec![5]),
        ("after=5", vec![]),
        ("after=1000", vec![]),
        ("after=9223372036854775807", vec![]),
    ] {
        assert_eq!(ids(&service.get(&format!("/v1/pets?{query}")).await), expected, "{query}");
    }
}

#[tokio::test]
async fn link_names_the_next_page_while_animals_remain() {
    let base_url = BaseUrl::parse("https://api.example.com/petstore/v1").unwrap();
    let service = with_animals(21, Setup { base_url: Some(base_url), ..Setup::default() }).await;
    let next = |query: &str| Some(format!(r#"<https://api.example.com/petstore/v1/pets?{query}>; rel="next""#));
    for (query, expected) in [
        ("", next("limit=20&after=20")),
        ("?limit=2", next("limit=2&after=2")),
        ("?after=3&limit=10", next("limit=10&after=13")),
        ("?status=sold&limit=3", next("limit=3&status=sold&after=9")),
        ("?limit=3&after=9&status=sold", next("limit=3&status=sold&after=18")),
        ("?limit=3&after=12&status=sold", None),
        ("?limit=21", None),
        ("?after=1", None),
        ("?after=21", None),
    ] {
        assert_eq!(
            service.get(&format!("/v1/pets{query}")).await.header("link").map(str::to_owned),
            expected,
            "{query}"
        );
    }
}

#[tokio::test]
async fn pagination_sees_each_animal_once_during_writes() {
    let service = with_animals(30, Setup::default()).await;
    for (query, earlier) in [("limit=7", (1..=30).collect::<Vec<_>>()), ("limit=3&status=pending", every_third(2, 30))]
    {
        let mut next = Some(format!("/v1/pets?{query}"));
        let mut seen = Vec::new();
        while let Some(path) = next {
            let page = service.get(&path).await;
            seen.extend(ids(&page));
            next = page.header("link").map(|link| target(&service, link));
            for status in ["available", "pending", "sold"] {
                add(&service, "late", status).await;
            }
            assert!(seen.len() < 200, "the walk ends");
            if seen.last() > earlier.last() {
                break;
            }
        }
        seen.retain(|id| *id <= 30);
        assert_eq!(seen, earlier, "{query}");
    }
}

#[tokio::test]
async fn after_and_its_link_are_marked_as_provisional() {
    let service = Service::start().await;
    let document = service.request("GET", "/openapi.json").send().await.json();
    let list = &document["paths"]["/pets"]["get"];
    let resolve = |parameter: &Value| match parameter["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap().clone(),
        None => parameter.clone(),
    };
    let parameters = list["parameters"].as_array().unwrap().iter().map(resolve);
    let marked: Vec<_> = parameters.filter(|parameter| parameter["x-provisional"] == json!(true)).collect();
    assert_eq!(marked.len(), 1);
    assert_eq!(marked[0]["name"], "after");
    assert_eq!(document["components"]["headers"]["NextPageLink"]["x-provisional"], json!(true));
}

#[tokio::test]
async fn head_equals_get_without_the_body() {
    let service = with_animals(3, Setup::default()).await;
    for path in ["/v1/pets?limit=2", "/v1/pets/2", "/openapi.json"] {
        let get = service.get(path).await;
        let head = service.request("HEAD", path).key(&service.key).send().await;
        assert_eq!((head.status(), head.body.as_str()), (200, ""), "{path}");
        for name in ["content-type", "content-length", "link", "deprecation"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
    }
}

/// A service with animals whose ids count from 1 and whose statuses take turns.
async fn with_animals(count: usize, setup: Setup) -> Service {
    let service = Service::start_with(setup).await;
    for (n, status) in (1..=count).zip(["available", "pending", "sold"].into_iter().cycle()) {
        add(&service, &format!("n{n}"), status).await;
    }
    service
}

async fn add(service: &Service, name: &str, status: &str) {
    let body = json!({ "name": name, "categoryId": 1, "status": status });
    let pet = petstore::http::parse_new_pet(&body.to_string()).unwrap();
    service.store.create_pet(pet, None).await.unwrap();
}

fn every_third(first: i64, last: i64) -> Vec<i64> {
    (first..=last).step_by(3).collect()
}

fn ids(list: &Response) -> Vec<i64> {
    assert_eq!(list.status(), 200, "{}", list.body);
    list.json().as_array().unwrap().iter().map(|pet| pet["id"].as_i64().unwrap()).collect()
}

fn names(list: &Response) -> Vec<String> {
    list.json().as_array().unwrap().iter().map(|pet| pet["name"].as_str().unwrap().to_owned()).collect()
}

/// The path that a link leads to.
fn target(service: &Service, link: &str) -> String {
    let address = link.strip_prefix('<').unwrap().strip_suffix(r#">; rel="next""#).unwrap();
    address.strip_prefix(&format!("http://{}", service.store_address)).unwrap().to_owned()
}
