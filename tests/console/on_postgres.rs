//! The console on PostgreSQL: the same pages on the other database.

use testkit::ConsoleUser;
use testkit::console::{PASSWORD, between};

use crate::service::Service;
use crate::users::{ADA, copy, status};

#[tokio::test]
async fn account_life_cycle_works_on_postgresql() {
    let service = Service::start_on_postgresql().await;
    let mut ada = ConsoleUser::signed_in(&service, ADA).await;
    let mut copied = copy(&ada);

    let overview = ada.get("/").await;
    assert_eq!(overview.status(), 200, "{}", overview.body);
    let version = between(&overview.body, "<dd>PostgreSQL ", "</dd>");
    assert!(!version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{version}");

    let key = ada.key("laptop").await;
    assert_eq!(status(&service, &key).await, 200);
    assert!(ada.get("/keys").await.body.contains("laptop"));
    let added = ada.post("/animals/new", &[("name", "Rex"), ("categoryId", "3"), ("status", "sold")]).await;
    assert_eq!(added.status(), 201, "{}", added.body);
    assert!(ada.get("/animals").await.body.contains("Rex"));
    ada.post("/animals/new", &[("name", "Mimi"), ("categoryId", "3"), ("status", "available")]).await;
    let ordered = ada.post("/orders", &[("petId", "2")]).await;
    assert_eq!(ordered.status(), 201, "{}", ordered.body);
    let cancelled = ada.post("/orders/1/cancel", &[]).await;
    assert!(
        cancelled.body.contains("Order 1 is now cancelled. \u{2068}Mimi\u{2069} (animal 2) is available."),
        "{}",
        cancelled.body
    );
    let sent = ada.post("/messages", &[("message", "Hello, store!")]).await;
    assert_eq!(sent.status(), 202, "{}", sent.body);
    let waiting = service.store.unsent_messages(None, 1).await.unwrap();
    service.store.mark_messages_sent(vec![(waiting[0].account, waiting[0].id)], waiting[0].created_at).await.unwrap();
    let messages = ada.get("/messages").await.body;
    assert!(messages.contains("Hello, store!") && messages.contains(">sent</span>"), "{messages}");

    let changed = ada.post("/account/password", &[("current", PASSWORD), ("new", "another fine password")]).await;
    assert_eq!((changed.status(), changed.header("location")), (303, Some("../account?notice=password-changed")));
    assert!(ada.is_signed_in().await && !copied.is_signed_in().await);

    copied.cookie.clone_from(&ada.cookie);
    assert_eq!(ada.post("/sign-out", &[]).await.status(), 303);
    assert!(!ada.is_signed_in().await && !copied.is_signed_in().await);
    assert_eq!(status(&service, &key).await, 200, "the key still works");

    ada.sign_in(ADA, "another fine password").await;
    let deleted = ada.post("/account/delete", &[("password", "another fine password")]).await;
    assert_eq!((deleted.status(), deleted.header("location")), (303, Some("../?notice=account-deleted")));
    assert_eq!(status(&service, &key).await, 401);
}
