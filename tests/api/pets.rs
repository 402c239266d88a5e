//! `listPets`, `createPet`, `getPet`.

use std::collections::BTreeSet;

use expect_test::expect;
use futures_util::future::join_all;
use serde_json::json;
use testkit::pet_with_all_fields;

use crate::service::{REX, Service};

#[tokio::test]
async fn created_animal_is_listed_and_found() {
    let service = Service::start().await;
    let empty = service.get("/v1/pets").await;
    assert_eq!((empty.status(), empty.body.as_str()), (200, "[]"));

    expect![[r#"
        201 Created
        location: http://HOST/v1/pets/1

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&service.post("/v1/pets", REX).await.shown());

    expect![[r#"
        200 OK

        [{"id":1,"name":"Rex","categoryId":3,"status":"available"}]
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());

    expect![[r#"
        200 OK
        deprecation: @1795132800
        sunset: Thu, 05 Dec 2030 00:00:00 GMT
        link: <http://HOST/docs/deprecations>; rel="deprecation", <http://HOST/v1/pets>; rel="successor-version"

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&service.get("/v1/pets/1").await.shown());
}

#[test]
fn all_fields_are_returned_unchanged() {
    Service::on_every_database(async |service| {
        let longest = "🦊".repeat(255);
        for (id, (name, category, status)) in (1..).zip([
            (" Rex ", i64::MIN, "available"),
            ("\"Rex\" \\ / <b>", -1, "pending"),
            ("ß\u{2028}\u{feff}e\u{301}", 0, "sold"),
            ("'; DROP TABLE pets; --", 9_007_199_254_740_993, "available"),
            ("null", i64::MAX, "sold"),
            (&longest, 7, "pending"),
        ]) {
            let mut pet = pet_with_all_fields();
            (pet["name"], pet["categoryId"], pet["status"]) = (name.into(), category.into(), status.into());
            let created = service.post("/v1/pets", &pet.to_string()).await.json();
            pet["id"] = id.into();
            assert_eq!(created, pet);
            assert_eq!(service.get(&format!("/v1/pets/{id}")).await.json(), pet);
            assert_eq!(service.get(&format!("/v1/pets?after={}", id - 1)).await.json(), json!([pet]));
        }
    });
}

#[test]
fn ids_start_at_1_and_are_unique_under_concurrency() {
    Service::on_every_database(async |service| {
        let bodies: Vec<_> = (0..200).map(|n| format!(r#"{{"name":"n{n}","categoryId":{n}}}"#)).collect();
        let created = join_all(bodies.iter().map(|body| service.post("/v1/pets", body))).await;

        created.iter().for_each(|answer| assert_eq!(answer.status(), 201, "{answer:?}"));
        let given: BTreeSet<_> = created.iter().map(|answer| answer.json()["id"].as_i64().unwrap()).collect();
        assert_eq!(given, (1..=200).collect());
        for (n, answer) in created.iter().enumerate() {
            let pet = answer.json();
            assert_eq!((&pet["name"], &pet["categoryId"]), (&json!(format!("n{n}")), &json!(n)));
            assert_eq!(service.get(&format!("/v1/pets/{}", pet["id"])).await.json(), pet);
        }
    });
}

#[test]
fn pages_follow_limit_status_and_after() {
    Service::on_every_database(async |service| {
        for status in ["available", "pending", "sold"].into_iter().cycle().take(101) {
            let body = json!({ "name": "Rex", "categoryId": 1, "status": status });
            let pet = petstore::api::parse_new_pet(&body.to_string()).unwrap();
            service.store.create_pet(pet, None).await.unwrap();
        }
        let range = |first, last| (first..=last).collect::<Vec<i64>>();
        for (query, expected, next) in [
            ("", range(1, 20), Some("limit=20&after=20")),
            ("?", range(1, 20), Some("limit=20&after=20")),
            ("?limit=1", range(1, 1), Some("limit=1&after=1")),
            ("?limit=00%35", range(1, 5), Some("limit=5&after=5")),
            ("?limit=100", range(1, 100), Some("limit=100&after=100")),
            ("?limit=100&after=1", range(2, 101), None),
            ("?limit=1&after=100", range(101, 101), None),
            ("?limit=2&after=0", range(1, 2), Some("limit=2&after=2")),
            ("?limit=2&after=-9223372036854775808", range(1, 2), Some("limit=2&after=2")),
            ("?after=98", range(99, 101), None),
            ("?after=101", vec![], None),
            ("?after=9223372036854775807", vec![], None),
            ("?status=available&limit=3", vec![1, 4, 7], Some("limit=3&status=available&after=7")),
            ("?status=pending&after=92", vec![95, 98, 101], None),
            ("?limit=3&after=2&status=sold", vec![3, 6, 9], Some("limit=3&status=sold&after=9")),
            ("?limit=2&after=93&status=sold", vec![96, 99], None),
        ] {
            service.assert_page("/v1/pets", query, &expected, next).await;
        }
    });
}

#[tokio::test]
async fn head_equals_get_without_the_body() {
    let service = Service::with_pets(3).await;
    service.order(&service.key, 1).send().await;
    for path in ["/v1/pets?limit=2", "/v1/pets/2", "/v1/store/orders/1", "/openapi.json"] {
        let (get, head) = (service.get(path).await, service.call("HEAD", path).send().await);
        assert_eq!((head.status(), head.body.as_str()), (200, ""), "{path}");
        for name in ["content-type", "content-length", "link", "deprecation"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
    }
}
