//! The audit: rows of changes in the console, and the page that lists them.

use expect_test::expect;
use testkit::ConsoleUser;
use testkit::console::{PASSWORD, code};

use crate::service::Service;
use crate::users::{ADA, staff};

const GRACE: &str = "grace@hopper.example";
const CHANGED: &str = "another horse battery";

#[tokio::test]
async fn each_change_leaves_one_row_without_a_secret() {
    let service = Service::with_pets(1).await;
    let (mut ada, mut grace) = (staff(&service, ADA).await, ConsoleUser::signed_in(&service, GRACE).await);
    let key = grace.key("laptop").await;
    let successor = code(&grace.fill_in("/keys/2/rotate", &[("overlap", "0s")]).await.body, "key");
    for (path, fields, status) in [
        ("/keys/2/revoke", vec![], 303),
        ("/keys/2/revoke", vec![], 303),
        ("/account/password", vec![("current", "wrong password"), ("new", CHANGED)], 422),
        ("/account/password", vec![("current", PASSWORD), ("new", CHANGED)], 303),
        ("/orders", vec![("petId", "1")], 201),
        ("/orders/1/approve", vec![], 200),
        ("/orders/1/approve", vec![], 409),
        ("/orders/1/cancel", vec![], 200),
        ("/account/delete", vec![("password", CHANGED)], 303),
        ("/reset", vec![], 303),
    ] {
        let by_staff = path.ends_with("approve") || path == "/reset";
        let answer = if by_staff { &mut ada } else { &mut grace }.post(path, &fields).await;
        assert_eq!(answer.status(), status, "{path}: {}", answer.body);
    }

    let mut rows = String::new();
    for row in service.audit().await {
        assert!([PASSWORD, CHANGED, &key, &successor].iter().all(|secret| !format!("{row:?}").contains(secret)));
        let (client, id) = (row.client_address.unwrap(), row.request_id.map_or("-", |_| "ID"));
        rows += &format!("{} {}: {} | {client} {id}\n", row.action, row.actor, row.subject);
    }
    expect![[r#"
        account.create ada@lovelace.example: ada@lovelace.example (customer) | 127.0.0.1 ID
        account.create grace@hopper.example: grace@hopper.example (customer) | 127.0.0.1 ID
        key.create grace@hopper.example: key 2 (pet_test_…KEY1) of grace@hopper.example: laptop | 127.0.0.1 ID
        key.rotate grace@hopper.example: key 2 (pet_test_…KEY1) to key 3 (pet_test_…KEY2) of grace@hopper.example: laptop | 127.0.0.1 ID
        key.revoke grace@hopper.example: key 2 (pet_test_…KEY1) of grace@hopper.example: laptop | 127.0.0.1 ID
        account.set_password grace@hopper.example: grace@hopper.example | 127.0.0.1 ID
        order.approve ada@lovelace.example: order 1 of grace@hopper.example | 127.0.0.1 ID
        order.cancel grace@hopper.example: order 1 of grace@hopper.example | 127.0.0.1 ID
        key.revoke grace@hopper.example: key 3 (pet_test_…KEY2) of grace@hopper.example: laptop | 127.0.0.1 ID
        account.delete grace@hopper.example: grace@hopper.example | 127.0.0.1 ID
        store.reset ada@lovelace.example: staging | 127.0.0.1 ID
    "#]].assert_eq(&rows.replace(&key[43..], "KEY1").replace(&successor[43..], "KEY2"));
}

#[tokio::test]
async fn audit_is_filtered_and_keeps_its_filters() {
    let service = Service::start().await;
    let (mut ada, mut grace) = (staff(&service, ADA).await, ConsoleUser::signed_in(&service, GRACE).await);
    for number in 0..21 {
        grace.key(&format!("key {number}")).await;
    }
    service.sql("UPDATE audit SET created_at = created_at - 2 * 86400000 WHERE action LIKE 'account.%'");
    for (filter, count) in [
        ("account=GRACE@hopper.example", 20),
        ("account=GRACE@hopper.example&action=account", 1),
        ("key=3", 1),
        ("subject=%3A+key+1", 11),
        ("since=1d&action=account", 0),
        ("until=1d&since=&key=+", 4),
        ("action=ke", 0),
    ] {
        let page = ada.get(&format!("/audit?{filter}")).await;
        assert_eq!((page.status(), page.body.matches(r#"<th scope="row">"#).count()), (200, count), "{filter}");
        assert_eq!(page.body.contains("No changes match."), count == 0, "{filter}");
    }
    let page = ada.get("/audit?action=key.create&account=grace@hopper.example").await.body;
    assert!(page.contains(r#"name="action" value="key.create""#), "{page}");
    assert!(page.contains("audit?action=key.create&#38;account=grace%40hopper.example&amp;before="), "{page}");
    for (path, why) in [
        ("/audit?since=24", "Since must be a number and s, m, h or d, for instance 30d."),
        ("/audit?account=x", "Account must be an e-mail address, for instance ada@example.com."),
        ("/audit?key=x", "Key must be a whole number of at most 64 bits, written in digits."),
    ] {
        let page = ada.get(path).await;
        assert!(page.status() == 400 && page.body.contains(why), "{path}: {page:?}");
    }
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
}
