//! Promise 50: the role of the account and the access of the key decide, on both databases.

use petstore::domain::api_key::Rotation;
use petstore::domain::{AccountId, ApiKey, Role};
use petstore::http::{Operation, Permission};
use testkit::{Request, Response, soon};

use crate::service::{NOW, REX, Service, ids};

/// A customer beside the service's own account, which is staff.
async fn customer(service: &Service) -> (AccountId, String) {
    service.another_account("carol@example.com").await
}

fn order(service: &Service, key: &str, pet: i64) -> Request {
    service.request("POST", "/v1/store/orders").key(key).json(format!(r#"{{"petId":{pet}}}"#))
}

async fn step(service: &Service, key: &str, order: i64, step: &str) -> Response {
    service.request("POST", &format!("/v1/store/orders/{order}/{step}")).key(key).send().await
}

async fn list(service: &Service, key: &str, query: &str) -> Response {
    service.request("GET", &format!("/v1/store/orders{query}")).key(key).send().await
}

#[tokio::test]
async fn every_operation_is_forbidden_exactly_where_the_table_says() {
    Service::on_every_database(async |service| {
        let (carol, customers) = customer(service).await;
        let (_, reading_customers) = service.reading_key(carol).await;
        let (_, reading_staffs) = service.reading_key(service.account).await;
        for operation in Operation::documented() {
            let only_reads = operation.method() == "GET";
            let is_for_staff = operation.permission() == Permission::Staff;
            for (key, is_staff, may_write) in [
                (&customers, false, true),
                (&service.key, true, true),
                (&reading_customers, false, false),
                (&reading_staffs, true, false),
            ] {
                // There is no such id, and the body is empty.
                let answer = service.request_to(operation, "999").key(key).send().await;
                let is_forbidden = (is_for_staff && !is_staff) || (!only_reads && !may_write);
                assert_eq!(answer.status() == 403, is_forbidden, "{operation:?}: {}", answer.shown());
                if is_forbidden {
                    assert_eq!(answer.code(), "forbidden");
                }
            }
        }
        let head = service.request("HEAD", "/v1/pets").key(&reading_customers).send().await;
        assert_eq!(head.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn customer_sees_and_cancels_only_own_orders() {
    Service::on_every_database(async |service| {
        service.create_pets(2).await;
        let (carol, key) = customer(service).await;
        let placed = order(service, &key, 1).send().await;
        assert_eq!((placed.status(), &placed.json()["accountId"]), (201, &carol.0.into()));
        assert_eq!(order(service, &service.key, 2).send().await.status(), 201);

        // The second responses come from the page cache.
        for _ in 0..2 {
            assert_eq!(ids(&list(service, &key, "").await), [1]);
            assert_eq!(ids(&list(service, &key, "?status=placed").await), [1]);
        }
        assert_eq!(order(service, &key, 2).send().await.code(), "conflict", "another account ordered the animal");
        let others = service.request("GET", "/v1/store/orders/2").key(&key).send().await;
        assert_eq!(others.status(), 404);
        let cancel = step(service, &key, 2, "cancel").await;
        assert_eq!((cancel.status(), cancel.body), (404, step(service, &key, 99, "cancel").await.body));
        let filtered = list(service, &key, "?accountId=1").await;
        assert_eq!((filtered.status(), filtered.code().as_str()), (400, "unknown_parameter"));
        for (id, name) in [(1, "approve"), (1, "deliver"), (2, "approve"), (999, "deliver")] {
            assert_eq!(step(service, &key, id, name).await.status(), 403, "{name} {id}");
        }
        assert_eq!(step(service, &key, 1, "cancel").await.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn staff_see_and_change_the_orders_of_all_customers() {
    Service::on_every_database(async |service| {
        service.create_pets(4).await;
        let (carol, key) = customer(service).await;
        for (key, pet) in [(&key, 1), (&service.key, 2), (&key, 3), (&key, 4)] {
            assert_eq!(order(service, key, pet).send().await.status(), 201);
        }
        let staff = &*service.key;
        assert_eq!(step(service, staff, 1, "approve").await.json()["accountId"], carol.0);
        assert_eq!(step(service, staff, 1, "deliver").await.json()["status"], "delivered");
        assert_eq!(step(service, staff, 3, "cancel").await.status(), 200);
        assert_eq!(service.request("GET", "/v1/store/orders/1").key(staff).send().await.status(), 200);

        let own = service.account.0;
        for (query, expected) in [
            (String::new(), &[1, 2, 3, 4][..]),
            ("?status=placed".into(), &[2, 4]),
            (format!("?accountId={}", carol.0), &[1, 3, 4]),
            (format!("?accountId={own}"), &[2]),
            (format!("?accountId={}&status=placed", carol.0), &[4]),
            ("?accountId=999".into(), &[]),
            ("?after=2".into(), &[3, 4]),
        ] {
            assert_eq!(ids(&list(service, staff, &query).await), expected, "{query}");
        }
        let first = list(service, staff, &format!("?limit=1&accountId={}", carol.0)).await;
        let next = first.header("link").unwrap();
        assert!(next.contains(&format!("?limit=1&accountId={}&after=1>", carol.0)), "{next}");
        let customers = list(service, &key, "?limit=1").await;
        assert!(customers.header("link").unwrap().contains("?limit=1&after=1>"), "not the cached page of staff");
        assert_eq!(list(service, staff, "?accountId=x").await.code(), "invalid_value");
    })
    .await;
}

#[tokio::test]
async fn permission_is_checked_after_the_rate_limit_and_before_the_rest() {
    let service = Service::start().await;
    let (_, key) = customer(&service).await;
    let approve = || service.request("POST", "/v1/store/orders/abc/approve");
    assert_eq!(approve().send().await.status(), 401);
    let large = approve().key(&key).header("content-type", "text/plain").body("x".repeat(70_000));
    assert_eq!(large.send().await.status(), 403);
    let simulated = approve().key(&key).header("prefer", "code=503").send().await;
    assert_eq!((simulated.status(), simulated.header("preference-applied")), (403, None));
    let simulated = approve().key(&service.key).header("prefer", "code=403").send().await;
    assert_eq!((simulated.code().as_str(), simulated.header("preference-applied")), ("forbidden", Some("code=403")));
}

#[tokio::test]
async fn changed_role_applies_within_a_second_also_to_replays() {
    Service::on_every_database(async |service| {
        service.create_pets(1).await;
        assert_eq!(order(service, &service.key, 1).send().await.status(), 201);
        let approve = async || {
            let request = service.request("POST", "/v1/store/orders/1/approve").key(&service.key);
            request.header("idempotency-key", "once").send().await
        };
        assert_eq!(approve().await.status(), 200);
        assert!(approve().await.is_replayed());
        for (role, status) in [(Role::Customer, 403), (Role::Staff, 200)] {
            // As another process does.
            assert!(service.store.set_role(service.account, role).await.unwrap());
            soon(async {
                while approve().await.status() != status {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn rotation_keeps_a_key_reading() {
    Service::on_every_database(async |service| {
        let (id, _) = service.reading_key(service.account).await;
        let successor = ApiKey::generate(service.store.deployment());
        let rotation = Rotation::to(&successor, NOW, std::time::Duration::ZERO);
        service.store.rotate_key(id, rotation).await.unwrap().unwrap();
        let create = service.request("POST", "/v1/pets").key(successor.expose()).json(REX).send().await;
        assert_eq!((create.status(), create.json()["message"].as_str()), (403, Some("This API key may only read.")));
        assert_eq!(service.request("GET", "/v1/pets").key(successor.expose()).send().await.status(), 200);
    })
    .await;
}
