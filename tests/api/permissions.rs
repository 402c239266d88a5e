//! Lists of orders for staff, and the place of the permission among the checks. The table of all permissions is in
//! `verification/tests/promises/permission_table.rs`.

use testkit::Response;

use crate::service::Service;

async fn list(service: &Service, key: &str, query: &str) -> Response {
    service.request("GET", &format!("/v1/store/orders{query}")).key(key).send().await
}

#[test]
fn staff_list_the_orders_of_all_or_of_one_customer() {
    Service::with_pets_on_every_database(4, async |service| {
        let (carol, key) = service.another_account("carol@example.com").await;
        for (key, pet) in [(&key, 1), (&service.key, 2), (&key, 3), (&key, 4)] {
            assert_eq!(service.order(key, pet).send().await.status(), 201);
        }
        let staff = &*service.key;
        assert_eq!(service.step(staff, 1, "approve").send().await.json()["accountId"], carol.0);
        assert_eq!(service.step(staff, 3, "cancel").send().await.status(), 200);

        let (own, carols) = (format!("accountId={}", service.account.0), format!("accountId={}", carol.0));
        for (query, expected) in [
            ("", &[1, 2, 3, 4][..]),
            ("?status=placed", &[2, 4]),
            (&format!("?{carols}"), &[1, 3, 4]),
            (&format!("?{own}"), &[2]),
            (&format!("?{carols}&status=placed"), &[4]),
            ("?accountId=999", &[]),
            ("?after=2", &[3, 4]),
        ] {
            assert_eq!(list(service, staff, query).await.ids(), expected, "{query}");
        }
        let next = list(service, staff, &format!("?limit=1&{carols}")).await.next_page();
        assert_eq!(next, Some(format!("/v1/store/orders?limit=1&{carols}&after=1")));
        let customers = list(service, &key, "?limit=1").await.next_page();
        assert_eq!(customers.as_deref(), Some("/v1/store/orders?limit=1&after=1"), "not the cached page of staff");
        assert_eq!(list(service, staff, "?accountId=x").await.code(), "invalid_value");
    });
}

#[tokio::test]
async fn permission_is_checked_before_the_body_and_the_simulation() {
    let service = Service::start().await;
    let (_, key) = service.another_account("carol@example.com").await;
    let approve = |key: &str| service.step(key, 1, "approve");
    let large = approve(&key).header("content-type", "text/plain").body("x".repeat(70_000));
    assert_eq!(large.send().await.code(), "forbidden");
    for (key, applied) in [(&key, None), (&service.key, Some("code=403"))] {
        let answer = approve(key).header("prefer", "code=403").send().await;
        assert_eq!((answer.code().as_str(), answer.header("preference-applied")), ("forbidden", applied));
    }
}
