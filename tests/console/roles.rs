//! Orders in the console of a customer and of staff.

use petstore::domain::Role;
use testkit::ConsoleUser;

use crate::service::{OPERATOR, Service};
use crate::users::{ADA, signed_in, staff};

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

#[test]
fn step_of_selected_orders_is_taken_for_each_on_its_own() {
    Service::with_pets_on_every_database(4, async |service| {
        let (mut ada, mut grace) = (staff(service, ADA).await, ConsoleUser::signed_in(service, GRACE).await);
        for animal in 1..=4 {
            assert_eq!(grace.post("/orders", &[("petId", &animal.to_string())]).await.status(), 201);
        }
        ada.post("/orders/2/cancel", &[]).await;
        let select =
            |step, key| [("step", step), ("idempotencyKey", key), ("order", "1"), ("order", "2"), ("order", "3")];
        let path = "/orders/steps?status=placed&customer=grace@hopper.example";

        let page = ada.post(path, &select("approve", "one")).await;

        assert_eq!(page.status(), 409);
        for outcome in [
            "Order 1 is now approved.",
            "Order 2: Nothing was changed. The order is cancelled; only one that is placed can become approved.",
            "Order 3 is now approved.",
        ] {
            assert!(page.body.contains(outcome), "{outcome}: {}", page.body);
        }
        assert!(page.body.contains("select order 4") && !page.body.contains("select order 1"), "{}", page.body);
        // The form is sent twice.
        let page = ada.post(path, &select("approve", "one")).await;
        assert_eq!(page.body.matches("This form was sent twice and counts once.").count(), 2, "{}", page.body);
        let none = ada.post(path, &[("step", "approve")]).await;
        assert_eq!(none.status(), 422);
        assert!(none.body.contains("Select at least one order."), "{}", none.body);
        assert_eq!(ada.post(path, &[("step", "x"), ("order", "4")]).await.status(), 400);

        let missing: Vec<_> = (101..=200).map(|order: i32| ("order", order.to_string())).collect();
        let mut selected: Vec<_> = missing.iter().map(|(name, order)| (*name, &**order)).collect();
        selected.push(("step", "approve"));
        assert!(ada.post(path, &selected).await.body.contains("Order 200: "), "none is cut");

        let page = grace.post("/orders/steps", &select("deliver", "two")).await;
        assert_eq!(page.status(), 403);
        assert_eq!(page.body.matches("Nothing was changed. Only staff may do this.").count(), 3, "{}", page.body);
        let page = grace.post("/orders/4/cancel?status=delivered", &[]).await;
        for shown in ["Order 4 is now cancelled.", "You have no delivered orders."] {
            assert!(page.body.contains(shown), "the list keeps its filter: {}", page.body);
        }

        let rows = service.audit().await;
        let mut rows: Vec<_> = rows
            .iter()
            .filter(|row| row.action.starts_with("order."))
            .map(|row| format!("{} {} by {}", row.action, row.subject, row.actor))
            .collect();
        rows.sort();
        assert_eq!(
            rows,
            [
                format!("order.approve order 1 of {GRACE} by {ADA}"),
                format!("order.approve order 3 of {GRACE} by {ADA}"),
                format!("order.cancel order 2 of {GRACE} by {ADA}"),
                format!("order.cancel order 4 of {GRACE} by {GRACE}"),
            ]
        );
    });
}
