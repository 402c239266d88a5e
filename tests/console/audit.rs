//! The audit: rows of changes in the console, and the page that lists them.

use petstore::domain::NewAccount;
use testkit::ConsoleUser;
use testkit::console::{PASSWORD, between, code};

use crate::service::{NOW, OPERATOR, Service};
use crate::users::{ADA, staff};

const GRACE: &str = "grace@hopper.example";
const CHANGED: &str = "another horse battery";

#[test]
fn each_change_leaves_one_row_without_a_secret() {
    Service::on_every_database(async |service| {
        let mut ada = staff(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, GRACE).await;
        service.create_pets(1).await;
        let key = grace.key("laptop").await;
        let id = grace.key_id().await;
        let rotated = grace.fill_in(&format!("/keys/{id}/rotate"), &[("overlap", "0s")]).await.body;
        let successor = code(&rotated, "key");
        assert_eq!(grace.post(&format!("/keys/{id}/revoke"), &[]).await.status(), 303);
        assert_eq!(grace.post(&format!("/keys/{id}/revoke"), &[]).await.status(), 303, "it is revoked already");
        let change = [("current", PASSWORD), ("new", CHANGED)];
        assert_eq!(grace.post("/account/password", &[("current", "wrong password"), change[1]]).await.status(), 422);
        assert_eq!(grace.post("/account/password", &change).await.status(), 303);
        assert_eq!(grace.post("/orders", &[("petId", "1")]).await.status(), 201);
        assert_eq!(ada.post("/orders/1/approve", &[]).await.status(), 200);
        assert_eq!(ada.post("/orders/1/approve", &[]).await.status(), 409);
        assert_eq!(grace.post("/orders/1/cancel", &[]).await.status(), 200);
        assert_eq!(grace.post("/account/delete", &[("password", CHANGED)]).await.status(), 303);
        assert_eq!(ada.post("/reset", &[]).await.status(), 303);

        let rows = service.audit().await;
        let hint = |key: &str| format!("pet_test_…{}", &key[key.len() - 4..]);
        let key_of = |id: i64, key: &str| format!("key {id} ({}) of {GRACE}: laptop", hint(key));
        let number: i64 = id.parse().unwrap();
        let rotation =
            format!("key {number} ({}) to key {} ({}) of {GRACE}: laptop", hint(&key), number + 1, hint(&successor));
        let (first, second) = (key_of(number, &key), key_of(number + 1, &successor));
        let (ada_created, grace_created) = (format!("{ADA} (customer)"), format!("{GRACE} (customer)"));
        let order = format!("order 1 of {GRACE}");
        let expected: [(&str, &str, &str); 10] = [
            ("account.create", ADA, &ada_created),
            ("account.create", GRACE, &grace_created),
            ("key.create", GRACE, &first),
            ("key.rotate", GRACE, &rotation),
            ("key.revoke", GRACE, &first),
            ("account.set_password", GRACE, GRACE),
            ("order.approve", ADA, &order),
            ("key.revoke", GRACE, &second),
            ("account.delete", GRACE, GRACE),
            ("store.reset", ADA, "staging"),
        ];
        let found: Vec<_> = rows.iter().map(|row| (&*row.action, &*row.actor, &*row.subject)).collect();
        assert_eq!(found, expected);
        for row in &rows {
            assert!(row.client_address.as_deref() == Some("127.0.0.1") && row.request_id.is_some(), "{row:?}");
            assert!([PASSWORD, CHANGED, &key, &successor].iter().all(|secret| !format!("{row:?}").contains(secret)));
        }
    });
}

#[tokio::test]
async fn only_staff_see_the_audit() {
    let service = Service::start().await;
    let (mut ada, mut grace) = (staff(&service, ADA).await, ConsoleUser::signed_in(&service, GRACE).await);
    assert!(ada.get("/").await.body.contains("href=\"./audit\""));

    let page = ada.get("/audit").await;

    assert_eq!(page.status(), 200);
    for shown in ["<code>account.create</code>", GRACE, "(customer)", "<bdi>command line</bdi>", "127.0.0.1"] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    let refused = grace.get("/audit").await;
    assert_eq!(refused.status(), 403);
    assert!(refused.body.contains("Only staff can see the audit.") && !refused.body.contains(ADA), "{}", refused.body);
    assert!(!grace.get("/").await.body.contains("href=\"./audit\""));
    let elsewhere = ConsoleUser::new(&service).get("/audit").await;
    assert_eq!((elsewhere.status(), elsewhere.header("location")), (303, Some("./sign-in?page=audit")));
}

#[test]
fn audit_is_shown_in_pages_newest_first() {
    Service::on_every_database(async |service| {
        let mut ada = staff(service, ADA).await;
        for number in 0..45 {
            let email = petstore::domain::Email::parse(&format!("{number}@example.com")).unwrap();
            service.store.create_account(NewAccount::customer(email, None, NOW), OPERATOR).await.unwrap().unwrap();
        }
        let (mut path, mut subjects, mut pages) = ("audit".to_owned(), Vec::new(), 0);
        loop {
            let page = ada.get(&format!("/{path}")).await.body;
            let shown = page.split("<bdi class=\"hint\">").skip(1).map(|rest| rest.split("</bdi>").next().unwrap());
            subjects.extend(shown.map(str::to_owned));
            pages += 1;
            if !page.contains("rel=\"next\"") {
                break;
            }
            path = between(&page, "<a href=\"./audit?before=", "\" rel=\"next\"").to_owned();
            path.insert_str(0, "audit?before=");
        }
        assert_eq!(pages, 3);
        let created: Vec<_> = subjects.iter().take(45).cloned().collect();
        let expected: Vec<_> = (0..45).rev().map(|number| format!("{number}@example.com (customer)")).collect();
        assert_eq!(created, expected);
    });
}
