//! Orders of customers and staff, and the place of the permission among the checks. `verification/tests/promises/permissions.rs` has the
//! table of all permissions.

use petstore::domain::AccountId;
use testkit::Response;

use crate::service::Service;

/// A customer beside the service's own account, which is staff.
async fn customer(service: &Service) -> (AccountId, String) {
    service.another_account("carol@example.com").await
}

async fn list(service: &Service, key: &str, query: &str) -> Response {
    service.request("GET", &format!("/v1/store/orders{query}")).key(key).send().await
}

#[test]
fn staff_see_and_change_the_orders_of_all_customers() {
    Service::with_pets_on_every_database(4, async |service| {
        let (carol, key) = customer(service).await;
        for (key, pet) in [(&key, 1), (&service.key, 2), (&key, 3), (&key, 4)] {
            assert_eq!(service.order(key, pet).send().await.status(), 201);
        }
        let staff = &*service.key;
        assert_eq!(service.step(staff, 1, "approve").send().await.json()["accountId"], carol.0);
        assert_eq!(service.step(staff, 1, "deliver").send().await.json()["status"], "delivered");
        assert_eq!(service.step(staff, 3, "cancel").send().await.status(), 200);
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
            assert_eq!(list(service, staff, &query).await.ids(), expected, "{query}");
        }
        let first = list(service, staff, &format!("?limit=1&accountId={}", carol.0)).await;
        let next = first.header("link").unwrap();
        assert!(next.contains(&format!("?limit=1&accountId={}&after=1>", carol.0)), "{next}");
        let customers = list(service, &key, "?limit=1").await;
        assert!(customers.header("link").unwrap().contains("?limit=1&after=1>"), "not the cached page of staff");
        assert_eq!(list(service, staff, "?accountId=x").await.code(), "invalid_value");
    });
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
