//! Forms that create, rotate and revoke API keys.

use std::time::Duration;

use testkit::console::{between, code};

use crate::service::{NOW, REX, Service};
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
    let hour = Duration::from_hours(1);
    for (after, expected) in [(Duration::ZERO, 200), (hour - Duration::from_millis(1), 200), (hour, 401)] {
        service.clock.set(NOW.plus(after));
        assert_eq!((status(&service, &old).await, status(&service, &new).await), (expected, 200), "{after:?}");
    }
    assert!(ada.get("/keys").await.body.contains(r#"<span class="badge">expired</span>"#));
    assert_eq!(ada.post(&path, &[("overlap", "1h"), ("newest", "99")]).await.status(), 404, "the key has expired");
}

#[tokio::test]
async fn key_may_expire_or_only_read_and_is_listed_by_its_hint() {
    let (service, mut ada) = signed_in().await;
    // No key has more access than was chosen.
    for (name, expiry, access) in [("", "30d", "write"), ("x", "31d", "write"), ("x", "30d", ""), ("x", "30d", "Read")]
    {
        let refused = ada.fill_in("/keys/new", &[("name", name), ("expiry", expiry), ("access", access)]).await;
        assert_eq!(refused.status(), 422, "{name:?} {expiry} {access:?}");
    }
    let made = ada.fill_in("/keys/new", &[("name", "ci"), ("expiry", "30d"), ("access", "read")]).await;
    let key = code(&made.body, "key");
    assert_eq!(made.header("cache-control"), Some("no-store"));

    let list = ada.get("/keys").await.body;
    assert!(list.contains("20 Dec 2026") && list.contains("only reads"), "{list}");
    assert!(list.contains(&key[43..]) && !list.contains(&key), "{list}");
    let used = |list: &str, when: &str, requests: u32| {
        let fields = [format!(r#""Last used">{when}</td>"#), format!(r#""Requests">{requests}</td>"#)];
        assert!(fields.iter().all(|field| list.contains(field)), "{fields:?}: {list}");
    };
    used(&list, "never", 0);
    assert_eq!(status(&service, &key).await, 200);
    assert_eq!(service.request("POST", "/v1/pets").key(&key).json(REX).send().await.status(), 403);
    used(&ada.get("/keys").await.body, "just now", 2);
}

#[tokio::test]
async fn repeated_form_creates_one_key() {
    let (service, mut ada) = signed_in().await;
    let keys = async || service.store.list_keys().await.unwrap().len();
    let laptop = [("name", "laptop"), ("expiry", "90d"), ("access", "write")];
    let first = [&laptop[..], &[("newest", "0")]].concat();
    let key = code(&ada.post("/keys/new", &first).await.body, "key");

    let again = ada.post("/keys/new", &first).await;

    assert_eq!((again.status(), keys().await), (409, 2), "{}", again.body);
    assert!(again.body.contains("No key was created. The key <strong>laptop</strong>"), "{}", again.body);
    assert!(again.body.contains(&key[43..]) && !again.body.contains(&key), "the key is not shown again");
    assert!(again.body.contains(r#"value="laptop""#) && again.body.contains(r#"value="90d" selected"#));
    assert_eq!(status(&service, &key).await, 200, "the key works");

    // The form in the response creates another key.
    let newest = between(&again.body, "name=\"newest\" value=\"", "\"");
    let another = ada.post("/keys/new", &[&laptop[..], &[("newest", newest)]].concat()).await;
    assert_eq!((another.status(), keys().await), (200, 3), "{}", another.body);
    assert_eq!(ada.post("/keys/new", &laptop).await.status(), 400);
}

#[tokio::test]
async fn key_rotated_twice_by_one_form_has_one_successor() {
    let (service, mut ada) = signed_in().await;
    ada.key("laptop").await;
    for (overlap, newest) in [("1h", "2"), ("0s", "3")] {
        for (status, words) in [(200, "works"), (409, "No key was created. The key <strong>laptop</strong>")] {
            let page = ada.post("/keys/2/rotate", &[("overlap", overlap), ("newest", newest)]).await;
            assert!(page.status() == status && page.body.contains(words), "{overlap}: {}", page.body);
        }
        assert_eq!(path(&service, "rotate").await, format!("/keys/{}/rotate", newest.parse::<i64>().unwrap() + 1));
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
