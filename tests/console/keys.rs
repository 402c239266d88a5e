//! API keys: made, rotated and revoked by the console's forms.

use testkit::ConsoleUser;
use testkit::console::{PASSWORD, between};

use crate::service::{NOW, Service};

#[tokio::test]
async fn changes_to_a_key_apply_once_answered() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let status = async |key: &str| service.request("GET", "/v1/pets").key(key).send().await.status();
    // Other processes are asked for changes four times a second, which may hide a change that was not noted here. Not
    // each time.
    for _ in 0..5 {
        let old = ada.key("laptop").await;
        assert_eq!(status(&old).await, 200, "it is remembered from now on");

        let rotated = ada.fill_in(&path(&service, "rotate").await, &[("overlap", "0s")]).await;
        assert_eq!(status(&old).await, 401);

        let new = between(&rotated.body, "<code id=\"key\">", "</code>");
        assert_eq!(status(new).await, 200);
        assert_eq!(ada.post(&path(&service, "revoke").await, &[]).await.status(), 303);
        assert_eq!(status(new).await, 401);
    }
    for number in 0..3 {
        let email = format!("ada.{number}@lovelace.example");
        let mut ada = ConsoleUser::signed_in(&service, &email).await;
        let key = ada.key("laptop").await;
        assert_eq!(status(&key).await, 200);
        assert_eq!(ada.post("/account/delete", &[("password", PASSWORD)]).await.status(), 303);
        assert_eq!(status(&key).await, 401);
    }
}

/// The page that does something to the newest key.
async fn path(service: &Service, what: &str) -> String {
    format!("/keys/{}/{what}", service.store.list_keys().await.unwrap().last().unwrap().id.0)
}

#[tokio::test]
async fn rotated_key_works_for_the_chosen_overlap() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let old = ada.key("laptop").await;
    let page = ada.get("/keys").await.body;
    let path = format!("/keys/{}/rotate", between(&page, "keys/", "/rotate").rsplit('/').next().unwrap());
    assert_eq!(ada.fill_in(&path, &[("overlap", "9999d")]).await.status(), 400);

    let page = ada.fill_in(&path, &[("overlap", "1h")]).await;

    let new = between(&page.body, "<code id=\"key\">", "</code>");
    assert!(page.body.contains("works until 20 Nov 2026, 10:30 UTC."), "{}", page.body);
    let list = async |key: &str| service.request("GET", "/v1/pets").key(key).send().await.status();
    assert_eq!((list(&old).await, list(new).await), (200, 200));
    service.clock.set(NOW.plus(std::time::Duration::from_secs(3600)));
    assert_eq!((list(&old).await, list(new).await), (401, 200));
    assert!(ada.get("/keys").await.body.contains(">expired<"));
    assert_eq!(ada.post(&path, &[("overlap", "1h"), ("newest", "99")]).await.status(), 404, "it no longer works");
}

#[tokio::test]
async fn key_may_expire_and_is_listed_by_its_hint() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    assert_eq!(ada.fill_in("/keys/new", &[("name", ""), ("expiry", "30d")]).await.status(), 422);
    assert_eq!(ada.fill_in("/keys/new", &[("name", "x"), ("expiry", "31d")]).await.status(), 422);
    let made = ada.fill_in("/keys/new", &[("name", "ci"), ("expiry", "30d")]).await;
    let key = between(&made.body, "<code id=\"key\">", "</code>").to_owned();
    assert_eq!(made.header("cache-control"), Some("no-store"));

    let list = ada.get("/keys").await.body;
    assert!(list.contains("20 Dec 2026") && list.contains(&key[43..]) && !list.contains(&key), "{list}");
}

#[tokio::test]
async fn repeated_form_creates_one_key() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let keys = async || service.store.list_keys().await.unwrap().len();
    let before = keys().await;
    let form = [("name", "laptop"), ("expiry", "90d"), ("newest", "0")];
    let key = between(&ada.post("/keys/new", &form).await.body, "<code id=\"key\">", "</code>").to_owned();

    let again = ada.post("/keys/new", &form).await;

    assert_eq!((again.status(), keys().await), (409, before + 1), "{}", again.body);
    assert!(again.body.contains("No key was created. The key <strong>laptop</strong>"), "{}", again.body);
    assert!(again.body.contains(&key[43..]) && !again.body.contains(&key), "it is not shown again: {}", again.body);
    assert!(again.body.contains(r#"value="laptop""#) && again.body.contains(r#"value="90d" selected"#));
    assert_eq!(service.request("GET", "/v1/pets").key(&key).send().await.status(), 200, "it works all the same");

    // Who wants another one sends the form that stands there now.
    let newest = between(&again.body, "name=\"newest\" value=\"", "\"").to_owned();
    let another = ada.post("/keys/new", &[("name", "laptop"), ("expiry", "90d"), ("newest", &newest)]).await;
    assert_eq!((another.status(), keys().await), (200, before + 2), "{}", another.body);
    assert_eq!(ada.post("/keys/new", &[("name", "laptop"), ("expiry", "90d")]).await.status(), 400);
}

#[tokio::test]
async fn key_rotated_twice_by_one_form_has_one_successor() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    ada.key("laptop").await;
    let id = service.store.list_keys().await.unwrap().last().unwrap().id.0.to_string();
    let path = format!("/keys/{id}/rotate");
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
