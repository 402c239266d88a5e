//! Orders in the console of a customer and of staff.

use petstore::domain::Role;
use testkit::ConsoleUser;

use crate::service::OPERATOR;
use crate::users::{ADA, signed_in};

const GRACE: &str = "grace@hopper.example";

#[tokio::test]
async fn orders_are_shown_and_changed_by_role() {
    let (service, mut ada) = signed_in().await;
    service.create_pets(2).await;
    let mut grace = ConsoleUser::signed_in(&service, GRACE).await;
    assert_eq!(grace.post("/orders", &[("petId", "1")]).await.status(), 201);
    let page = ada.post("/orders", &[("petId", "2")]).await;
    assert_eq!(page.status(), 201);
    assert!(page.body.contains(GRACE) && page.body.contains("approve order 1"), "{}", page.body);

    let page = grace.get("/orders").await.body;

    assert!(page.contains("cancel order 1") && !page.contains("approve order 1"), "{page}");
    assert!(!page.contains("cancel order 2") && !page.contains("Customer"), "{page}");
    for step in ["approve", "deliver"] {
        let refused = grace.post(&format!("/orders/1/{step}"), &[]).await;
        assert_eq!(refused.status(), 403, "{step}");
        assert!(refused.body.contains("Nothing was changed. Only staff may do this."), "{}", refused.body);
    }
    assert_eq!(grace.post("/orders/2/cancel", &[]).await.status(), 404);
    let approved = ada.post("/orders/1/approve", &[]).await;
    assert_eq!(approved.status(), 200, "{}", approved.body);
    assert!(approved.body.contains("Order 1 is now approved."), "{}", approved.body);
    assert_eq!(grace.post("/orders/1/cancel", &[]).await.status(), 200);

    // Another role applies to the next page.
    for (email, role) in [(ADA, Role::Customer), (GRACE, Role::Staff)] {
        service.store.set_role(service.account_of(email).await, role, OPERATOR).await.unwrap();
    }
    assert!(!ada.get("/orders").await.body.contains(GRACE));
    assert_eq!(ada.post("/orders/2/approve", &[]).await.status(), 403);
    assert_eq!(grace.post("/orders/2/approve", &[]).await.status(), 200);
}
