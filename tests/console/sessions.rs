//! Sessions: what begins, carries and ends them.

use std::time::Duration;

use petstore::config::BaseUrl;
use petstore::domain::session::{ABSOLUTE, IDLE};
use testkit::ConsoleUser;
use testkit::console::PASSWORD;

use crate::service::{NOW, Service, Setup};

#[tokio::test]
async fn cookie_is_hidden_from_scripts_and_other_sites() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;

    let answer = ada.post("/sign-in", &[("email", "ada@lovelace.example"), ("password", PASSWORD)]).await;

    let cookie = answer.header("set-cookie").unwrap();
    let token = cookie.strip_prefix("petstore=").unwrap().strip_suffix("; Path=/; HttpOnly; SameSite=Lax").unwrap();
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{cookie}");
}

#[tokio::test]
async fn cookie_is_host_only_over_tls() {
    let base_url = Some(BaseUrl::parse("https://shop.example/v1").unwrap());
    let service = Service::start_with(Setup { base_url, ..Setup::default() }).await;
    let ada = ConsoleUser::new(&service);
    let post = async |path| {
        let request = ada.request("POST", path).header("origin", "https://shop.example");
        request.form(&[("email", "ada@lovelace.example"), ("password", PASSWORD)]).send().await
    };
    post("/sign-up").await;
    let answer = post("/sign-in").await;
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-petstore="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
}

#[tokio::test]
async fn page_opened_by_another_name_redirects_to_one_host() {
    let service = Service::start().await;
    let port = service.store_address.port();
    let request = format!("GET /sign-in?x=y HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n");
    let answer = testkit::raw(service.store_address, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
    assert!(answer.contains(&format!("location: http://127.0.0.1:{port}/sign-in?x=y\r\n")), "{answer}");
}

#[tokio::test]
async fn only_a_hash_of_the_token_is_stored() {
    let service = Service::start().await;
    let ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let token = ada.cookie.unwrap().split_once('=').unwrap().1.to_owned();
    let database = service.database();
    let stored: Vec<u8> = database.query_row("SELECT token_hash FROM sessions", [], |row| row.get(0)).unwrap();
    assert_eq!(stored.len(), 32);
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for file in ["petstore.db", "petstore.db-wal"] {
        let bytes = std::fs::read(service.folder.path().join(file)).unwrap();
        assert!(!bytes.windows(32).any(|window| window == token.as_bytes()), "{file}");
        assert!(!bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()), "{file}");
    }
}

#[tokio::test]
async fn unused_session_expires() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let almost = IDLE - std::time::Duration::from_secs(60);
    service.clock.set(NOW.plus(almost));
    assert!(ada.is_signed_in().await, "and this use prolongs it");
    service.clock.set(NOW.plus(almost + almost));
    assert!(ada.is_signed_in().await);

    service.clock.set(NOW.plus(almost + almost + IDLE));
    assert!(!ada.is_signed_in().await);
    let answer = ada.get("/keys").await;
    assert_eq!((answer.status(), answer.header("location")), (303, Some("./sign-in?notice=session-ended")));
    assert!(ada.get("/sign-in?notice=session-ended").await.body.contains("Your session has ended."));
}

#[tokio::test]
async fn used_session_expires_eventually() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let mut now = NOW;
    while now.plus(IDLE / 2) < NOW.plus(ABSOLUTE) {
        assert!(ada.is_signed_in().await);
        now = now.plus(IDLE / 2);
        service.clock.set(now);
    }
    assert!(ada.is_signed_in().await);
    service.clock.set(NOW.plus(ABSOLUTE));
    assert!(!ada.is_signed_in().await);
}

#[tokio::test]
async fn restart_with_a_corrected_clock_ends_sessions() {
    let service = Service::start().await;
    let right = service.clock.steady();
    service.clock.set(right.plus(Duration::from_hours(24 * 3_650)));
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    assert!(ada.is_signed_in().await);
    // The steady clock of a process that starts after the correction.
    service.clock.set(right);
    assert!(!ada.is_signed_in().await);
}

#[tokio::test]
async fn signing_in_replaces_the_session() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let mut before = ConsoleUser { cookie: ada.cookie.clone(), ..ConsoleUser::new(&service) };

    ada.sign_in("ada@lovelace.example", PASSWORD).await;

    assert_ne!(ada.cookie, before.cookie);
    assert!(ada.is_signed_in().await && !before.is_signed_in().await);
}

#[tokio::test]
async fn foreign_session_token_is_never_adopted() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::new(&service);
    let chosen = format!("petstore={}", "0".repeat(32));
    ada.cookie = Some(chosen.clone());
    ada.post("/sign-up", &[("email", "ada@lovelace.example"), ("password", PASSWORD)]).await;
    assert_ne!(ada.cookie, Some(chosen.clone()));
    ada.sign_in("ada@lovelace.example", PASSWORD).await;
    assert_ne!(ada.cookie, Some(chosen.clone()));
    assert!(!ConsoleUser { cookie: Some(chosen), ..ConsoleUser::new(&service) }.is_signed_in().await);
}

#[tokio::test]
async fn sign_up_replaces_the_session_of_another_account() {
    let service = Service::start().await;
    let mut eve = ConsoleUser::signed_in(&service, "eve@evil.example").await;
    let mut ada = ConsoleUser { cookie: eve.cookie.clone(), ..ConsoleUser::new(&service) };

    ada.post("/sign-up", &[("email", "ada@lovelace.example"), ("password", PASSWORD)]).await;

    assert_ne!(ada.cookie, eve.cookie);
    assert!(ada.get("/").await.body.contains("ada@lovelace.example"));
    assert!(!eve.is_signed_in().await, "the planted session has ended");
}

#[tokio::test]
async fn signing_out_ends_the_session_on_the_server() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let mut copied = ConsoleUser { cookie: ada.cookie.clone(), ..ConsoleUser::new(&service) };

    let answer = ada.post("/sign-out", &[]).await;

    assert_eq!((answer.status(), answer.header("location")), (303, Some("./?notice=signed-out")));
    assert!(answer.header("set-cookie").unwrap().contains("; Max-Age=0"));
    assert!(!copied.is_signed_in().await);
}

#[tokio::test]
async fn new_password_ends_every_other_session() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let mut elsewhere = ConsoleUser::new(&service);
    elsewhere.sign_in("ada@lovelace.example", PASSWORD).await;
    let mut copied = ConsoleUser { cookie: ada.cookie.clone(), ..ConsoleUser::new(&service) };

    let wrong =
        ada.post("/account/password", &[("current", "not my password"), ("new", "another fine password")]).await;
    assert_eq!(wrong.status(), 422);
    assert!(wrong.body.contains("The password is wrong."), "{}", wrong.body);
    assert!(elsewhere.is_signed_in().await);

    let changed = ada.post("/account/password", &[("current", PASSWORD), ("new", "another fine password")]).await;

    assert_eq!((changed.status(), changed.header("location")), (303, Some("../account?notice=password-changed")));
    assert!(ada.is_signed_in().await && !elsewhere.is_signed_in().await && !copied.is_signed_in().await);
    let old = elsewhere.post("/sign-in", &[("email", "ada@lovelace.example"), ("password", PASSWORD)]).await;
    assert_eq!(old.status(), 422);
    elsewhere.sign_in("ada@lovelace.example", "another fine password").await;
}

#[tokio::test]
async fn deleting_the_account_ends_its_sessions_and_keys() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::signed_in(&service, "ada@lovelace.example").await;
    let key = ada.key("laptop").await;
    let list = async || service.request("GET", "/v1/pets").key(&key).send().await.status();
    assert_eq!(list().await, 200);
    let mut copied = ConsoleUser { cookie: ada.cookie.clone(), ..ConsoleUser::new(&service) };

    assert_eq!(ada.post("/account/delete", &[("password", "not my password")]).await.status(), 422);
    // Until it was noticed that the key was made, and it is remembered: only its end can have it looked up again.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(list().await, 200);

    let answer = ada.post("/account/delete", &[("password", PASSWORD)]).await;
    assert_eq!((answer.status(), answer.header("location")), (303, Some("../?notice=account-deleted")));
    assert_eq!(list().await, 401);
    assert!(!copied.is_signed_in().await);
    let gone = ada.post("/sign-in", &[("email", "ada@lovelace.example"), ("password", PASSWORD)]).await;
    assert_eq!(gone.status(), 422);
}
