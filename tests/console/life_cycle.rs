//! The life of an account in the console, on both databases.

use testkit::ConsoleUser;
use testkit::console::{PASSWORD, between};

use crate::service::{NOW, Service};
use crate::users::{ADA, copy, status};

const CHANGED: &str = "another fine password";

/// `verification/tests/promises/revoking.rs` deletes an account whose key is cached.
#[test]
fn account_is_used_signed_out_and_deleted() {
    Service::on_every_database(async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let (mut copied, mut elsewhere) = (copy(&ada), ConsoleUser::new(service));
        elsewhere.sign_in(ADA, PASSWORD).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;

        let key = ada.key("laptop").await;
        assert_eq!(status(service, &key).await, 200);
        assert!(ada.get("/keys").await.body.contains("laptop"));
        let sent = ada.post("/messages", &[("message", "Hello, store!")]).await;
        assert_eq!(sent.status(), 202, "{}", sent.body);
        assert!(sent.body.contains(">queued</span>"), "{}", sent.body);
        let account = service.account_of(ADA).await;
        let message = service.messages_of(account).await.remove(0).0;
        service.store.mark_messages_sent(vec![(account, message.id)], NOW).await.unwrap();
        let messages = ada.get("/messages").await.body;
        assert!(messages.contains("Hello, store!") && messages.contains(">sent</span>"), "{messages}");

        let wrong = ada.post("/account/password", &[("current", "not my password"), ("new", CHANGED)]).await;
        assert_eq!(wrong.status(), 422);
        assert!(wrong.body.contains("The password is wrong.") && elsewhere.is_signed_in().await, "{}", wrong.body);
        let changed = ada.post("/account/password", &[("email", ADA), ("current", PASSWORD), ("new", CHANGED)]).await;
        assert_eq!((changed.status(), changed.header("location")), (303, Some("../account?notice=password-changed")));
        let said = ada.get("/account?notice=password-changed").await.body;
        assert!(said.contains("Your password was changed. All your other sessions have ended."), "{said}");
        assert!(ada.is_signed_in().await && !elsewhere.is_signed_in().await && !copied.is_signed_in().await);
        assert!(grace.is_signed_in().await, "another account");
        let old = elsewhere.post("/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
        assert_eq!(old.status(), 422);

        copied.cookie.clone_from(&ada.cookie);
        let answer = ada.post("/sign-out", &[]).await;
        assert_eq!((answer.status(), answer.header("location")), (303, Some("./?notice=signed-out")));
        assert!(answer.header("set-cookie").unwrap().contains("; Max-Age=0"));
        assert!(!ada.is_signed_in().await && !copied.is_signed_in().await);
        assert_eq!(status(service, &key).await, 200, "the key still works");

        ada.sign_in(ADA, CHANGED).await;
        copied.cookie.clone_from(&ada.cookie);
        assert_eq!(ada.post("/account/delete", &[("password", "not my password")]).await.status(), 422);
        assert_eq!(status(service, &key).await, 200);
        assert!(!service.api.account_requests.of(account).is_empty());
        let deleted = ada.post("/account/delete", &[("email", &ADA.to_uppercase()), ("password", CHANGED)]).await;
        assert_eq!((deleted.status(), deleted.header("location")), (303, Some("../?notice=account-deleted")));
        assert_eq!(status(service, &key).await, 401);
        assert!(service.api.account_requests.of(account).is_empty(), "a key of a deleted account is nobody's");
        assert!(!copied.is_signed_in().await);
        assert_eq!(ada.post("/sign-in", &[("email", ADA), ("password", CHANGED)]).await.status(), 422);
    });
}

#[tokio::test]
async fn overview_shows_the_version_of_postgresql() {
    let service = Service::start_on_postgresql().await;
    let overview = ConsoleUser::signed_in(&service, ADA).await.get("/").await.body;
    let version = between(&overview, "<dd>PostgreSQL ", "</dd>");
    assert!(!version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{version}");
}
