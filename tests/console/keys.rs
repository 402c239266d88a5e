//! Forms that create, rotate and revoke API keys.

use testkit::console::{between, code};

use crate::service::{NOW, Service};
use crate::users::{signed_in, signed_in_with_key, status};

/// The path of an action on the newest key.
async fn path(service: &Service, action: &str) -> String {
    format!("/keys/{}/{action}", service.store.list_keys().await.unwrap().last().unwrap().id.0)
}

#[tokio::test]
async fn rotated_key_works_for_the_chosen_overlap() {
    let (service, mut ada, old) = signed_in_with_key().await;
    let path = format!("/keys/{}/rotate", ada.key_id().await);
    assert_eq!(ada.fill_in(&path, &[("overlap", "9999d")]).await.status(), 400);

    let page = ada.fill_in(&path, &[("overlap", "1h")]).await;

    let new = code(&page.body, "key");
    assert!(page.body.contains("works until 20 Nov 2026, 10:30 UTC."), "{}", page.body);
    assert_eq!((status(&service, &old).await, status(&service, &new).await), (200, 200));
    service.clock.set(NOW.plus(std::time::Duration::from_secs(3600)));
    assert_eq!((status(&service, &old).await, status(&service, &new).await), (401, 200));
    assert!(ada.get("/keys").await.body.contains(r#"<span class="badge">expired</span>"#));
    assert_eq!(ada.post(&path, &[("overlap", "1h"), ("newest", "99")]).await.status(), 404, "the key has expired");
}

#[tokio::test]
async fn key_may_expire_and_is_listed_by_its_hint() {
    let (_service, mut ada) = signed_in().await;
    assert_eq!(ada.fill_in("/keys/new", &[("name", ""), ("expiry", "30d"), ("access", "write")]).await.status(), 422);
    assert_eq!(ada.fill_in("/keys/new", &[("name", "x"), ("expiry", "31d"), ("access", "write")]).await.status(), 422);
    for access in ["", "Read"] {
        let form = [("name", "x"), ("expiry", "30d"), ("access", access)];
        assert_eq!(ada.fill_in("/keys/new", &form).await.status(), 422, "no key with more access than was chosen");
    }
    let made = ada.fill_in("/keys/new", &[("name", "ci"), ("expiry", "30d"), ("access", "write")]).await;
    let key = code(&made.body, "key");
    assert_eq!(made.header("cache-control"), Some("no-store"));

    let list = ada.get("/keys").await.body;
    assert!(list.contains("20 Dec 2026") && list.contains(&key[43..]) && !list.contains(&key), "{list}");
}

#[tokio::test]
async fn repeated_form_creates_one_key() {
    let (service, mut ada) = signed_in().await;
    let keys = async || service.store.list_keys().await.unwrap().len();
    let before = keys().await;
    let form = [("name", "laptop"), ("expiry", "90d"), ("access", "write"), ("newest", "0")];
    let key = code(&ada.post("/keys/new", &form).await.body, "key");

    let again = ada.post("/keys/new", &form).await;

    assert_eq!((again.status(), keys().await), (409, before + 1), "{}", again.body);
    assert!(again.body.contains("No key was created. The key <strong>laptop</strong>"), "{}", again.body);
    let shown = again.body.contains(&key);
    assert!(again.body.contains(&key[43..]) && !shown, "the key is not shown again: {}", again.body);
    assert!(again.body.contains(r#"value="laptop""#) && again.body.contains(r#"value="90d" selected"#));
    assert_eq!(status(&service, &key).await, 200, "the key works");

    // The form in the response creates another key.
    let newest = between(&again.body, "name=\"newest\" value=\"", "\"").to_owned();
    let another =
        ada.post("/keys/new", &[("name", "laptop"), ("expiry", "90d"), ("access", "write"), ("newest", &newest)]).await;
    assert_eq!((another.status(), keys().await), (200, before + 2), "{}", another.body);
    assert_eq!(
        ada.post("/keys/new", &[("name", "laptop"), ("expiry", "90d"), ("access", "write")]).await.status(),
        400
    );
}

#[tokio::test]
async fn key_rotated_twice_by_one_form_has_one_successor() {
    let (service, mut ada) = signed_in().await;
    ada.key("laptop").await;
    let path = path(&service, "rotate").await;
    for overlap in ["1h", "0s"] {
        let before = service.store.list_keys().await.unwrap();
        let newest = before.last().unwrap().id.0.to_string();
        let form = [("overlap", overlap), ("newest", &newest)];
        assert_eq!(ada.post(&path, &form).await.status(), 200);

        let again = ada.post(&path, &form).await;

        assert_eq!(again.status(), 409);
        assert!(again.body.contains("No key was created. The key <strong>laptop</strong>"), "{}", again.body);
        assert_eq!(service.store.list_keys().await.unwrap().len(), before.len() + 1);
    }
}

#[tokio::test]
async fn account_gets_sixty_keys_at_once_and_then_one_every_ten_seconds() {
    let (service, mut ada) = signed_in().await;
    for number in 0..60 {
        ada.key(&number.to_string()).await;
    }
    let refused = ada.fill_in(&path(&service, "rotate").await, &[("overlap", "0s")]).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("10")));
    assert!(refused.body.contains("There were too many new API keys."), "{}", refused.body);
    assert_eq!(ada.post(&path(&service, "revoke").await, &[]).await.status(), 303);
}

#[tokio::test]
async fn key_that_fails_is_created_and_listed_with_its_preferences() {
    let (service, mut ada) = signed_in().await;
    assert!(ada.get("/keys/new").await.body.contains("Simulate failures"));
    let refused = [("name", "ci"), ("expiry", "never"), ("access", "write"), ("prefer", "code=503, rate=2")];
    let page = ada.fill_in("/keys/new", &refused).await;
    assert_eq!(page.status(), 422);
    assert!(page.body.contains("The text has an invalid rate: it must be 0 to 1, such as 0.1."), "{}", page.body);

    let form = [("name", "ci"), ("expiry", "never"), ("access", "write"), ("prefer", "code=503, every=2")];
    let made = ada.fill_in("/keys/new", &form).await;

    assert!(made.body.contains("Requests with this key get simulated failures"), "{}", made.body);
    let key = code(&made.body, "key");
    assert_eq!([status(&service, &key).await, status(&service, &key).await], [200, 503]);
    assert!(ada.get("/keys").await.body.contains("Simulates <code>code=503, every=2</code>"));
    let rotated = ada.fill_in(&path(&service, "rotate").await, &[("overlap", "0s")]).await;
    let successor = code(&rotated.body, "key");
    assert_eq!([status(&service, &successor).await, status(&service, &successor).await], [200, 503]);
}
