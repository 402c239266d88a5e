//! Sessions: their cookies, their beginning and their end.

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
        (Some("HTTPS://Shop.example/v1"), "__Host-", format!("; Path=/{hidden}; Secure")),
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
async fn session_expires_unused_or_after_its_maximum_lifetime() {
    let (service, mut ada) = signed_in().await;
    for used in (0..).map(|uses| NOW.plus(IDLE / 2 * uses)).take_while(|used| *used < NOW.plus(ABSOLUTE)) {
        service.clock.set(used);
        assert!(ada.is_signed_in().await, "each use prolongs it");
    }

    for end in [NOW.plus(ABSOLUTE), NOW.plus(ABSOLUTE + IDLE)] {
        service.clock.set(end);
        let answer = ada.get("/keys").await;
        assert_eq!(answer.status(), 303);
        assert_eq!(answer.header("location"), Some("./sign-in?notice=session-ended&page=keys"));
        ada.sign_in(ADA, PASSWORD).await;
    }
    assert!(ada.get("/keys").await.body.contains("Sign out"));
    let said = ConsoleUser::new(&service).get("/sign-in?notice=session-ended").await.body;
    assert!(said.contains("Your session has ended."), "{said}");
}

#[tokio::test]
async fn signing_in_or_up_begins_a_new_session() {
    let service = Service::start().await;
    // Another site may have chosen the first token.
    let chosen = format!("petstore-{}={}", service.store.id(), "0".repeat(32));
    let mut browser = ConsoleUser { cookie: Some(chosen), ..ConsoleUser::new(&service) };
    for (path, email) in [("/sign-up", ADA), ("/sign-in", ADA), ("/sign-up", "eve@evil.example")] {
        let mut before = copy(&browser);

        assert_eq!(browser.post(path, &[("email", email), ("password", PASSWORD)]).await.status(), 303);

        assert_ne!(browser.cookie, before.cookie, "{path}");
        assert!(browser.get("/").await.body.contains(email) && !before.is_signed_in().await, "{path}");
    }
}
