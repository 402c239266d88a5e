//! Sessions: their cookies, their beginning and their end.

use std::time::Duration;

use petstore::api::BaseUrl;
use petstore::domain::session::{ABSOLUTE, IDLE};
use testkit::ConsoleUser;
use testkit::console::PASSWORD;

use crate::service::{NOW, Service, Setup};
use crate::users::{ADA, copy, signed_in};

#[tokio::test]
async fn cookie_is_hidden_from_scripts_and_other_sites() {
    let hidden = "; HttpOnly; SameSite=Lax";
    for (base_url, prefix, attributes) in [
        (None, "", format!("; Path=/{hidden}")),
        (Some("http://shop.example/pets/v1"), "", format!("; Path=/pets{hidden}")),
        (Some("https://shop.example/v1"), "__Host-", format!("; Path=/{hidden}; Secure")),
        (Some("https://shop.example/a/b/v1"), "__Secure-", format!("; Path=/a/b{hidden}; Secure")),
    ] {
        let base_url = base_url.map(|url| BaseUrl::parse(url).unwrap());
        let own = base_url.as_ref().map(BaseUrl::origin);
        let service = Service::start_with(Setup { base_url, ..Setup::default() }).await;
        let ada = ConsoleUser::new(&service);
        let own = own.unwrap_or_else(|| format!("http://{}", service.store_address));
        let name = format!("{prefix}petstore-{}=", service.store.id());
        let post = async |path| {
            let request = ada.request("POST", path).header("origin", &own);
            request.form(&[("email", ADA), ("password", PASSWORD)]).send().await
        };
        for path in ["/sign-up", "/sign-in"] {
            let answer = post(path).await;
            let cookie = answer.header("set-cookie").unwrap();
            let token = cookie.strip_prefix(&*name).unwrap().strip_suffix(&attributes).unwrap();
            assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{cookie}");
            let beside = format!("other=ü; {name}{token}");
            assert!(ConsoleUser { cookie: Some(beside), ..ada }.is_signed_in().await, "beside another site's cookie");
        }
    }
}

#[tokio::test]
async fn stores_on_one_host_do_not_share_a_session() {
    let (first, second) = (Service::start().await, Service::start().await);
    let mut ada = ConsoleUser::signed_in(&first, ADA).await;
    let eve = ConsoleUser::signed_in(&second, "eve@evil.example").await;
    // The browser sends the cookies of all ports of a host to each.
    let shared = format!("{}; {}", ada.cookie.clone().unwrap(), eve.cookie.unwrap());
    ada.cookie = Some(shared.clone());

    let mut beside = ConsoleUser { cookie: Some(shared), ..ConsoleUser::new(&second) };

    assert!(ada.is_signed_in().await && beside.is_signed_in().await);
    assert!(ada.get("/account").await.body.contains(ADA) && !beside.get("/account").await.body.contains(ADA));
    let left = beside.post("/sign-out", &[]).await;
    let name = format!("petstore-{}=", second.store.id());
    assert!(left.header("set-cookie").unwrap().starts_with(&format!("{name};")), "the other store's cookie stays");
}

#[tokio::test]
async fn unused_session_expires() {
    let (service, mut ada) = signed_in().await;
    let almost = IDLE - Duration::from_secs(60);
    service.clock.set(NOW.plus(almost));
    assert!(ada.is_signed_in().await, "this use prolongs it");
    service.clock.set(NOW.plus(almost + almost));
    assert!(ada.is_signed_in().await);

    service.clock.set(NOW.plus(almost + almost + IDLE));
    assert!(!ada.is_signed_in().await);
    let answer = ada.get("/keys").await;
    assert_eq!((answer.status(), answer.header("location")), (303, Some("./sign-in?notice=session-ended&page=keys")));
    assert!(ada.get("/sign-in?notice=session-ended").await.body.contains("Your session has ended."));
}

#[tokio::test]
async fn used_session_expires_eventually() {
    let (service, mut ada) = signed_in().await;
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
    let mut ada = ConsoleUser::signed_in(&service, ADA).await;
    assert!(ada.is_signed_in().await);
    // The steady clock of a process that starts after the correction.
    service.clock.set(right);
    assert!(!ada.is_signed_in().await);
}

#[tokio::test]
async fn signing_in_replaces_the_session() {
    let (_service, mut ada) = signed_in().await;
    let mut before = copy(&ada);

    ada.sign_in(ADA, PASSWORD).await;

    assert_ne!(ada.cookie, before.cookie);
    assert!(ada.is_signed_in().await && !before.is_signed_in().await);
}

#[tokio::test]
async fn foreign_session_token_is_never_adopted() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::new(&service);
    let chosen = format!("petstore-{}={}", service.store.id(), "0".repeat(32));
    ada.cookie = Some(chosen.clone());
    ada.post("/sign-up", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_ne!(ada.cookie, Some(chosen.clone()));
    ada.sign_in(ADA, PASSWORD).await;
    assert_ne!(ada.cookie, Some(chosen.clone()));
    assert!(!ConsoleUser { cookie: Some(chosen), ..ConsoleUser::new(&service) }.is_signed_in().await);
}

#[tokio::test]
async fn sign_up_replaces_the_session_of_another_account() {
    let service = Service::start().await;
    let mut eve = ConsoleUser::signed_in(&service, "eve@evil.example").await;
    let mut ada = copy(&eve);

    ada.post("/sign-up", &[("email", ADA), ("password", PASSWORD)]).await;

    assert_ne!(ada.cookie, eve.cookie);
    assert!(ada.get("/").await.body.contains(ADA));
    assert!(!eve.is_signed_in().await, "the session of the other account has ended");
}
