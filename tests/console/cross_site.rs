//! Other sites cannot act for a signed-in user.

use testkit::console::PASSWORD;

use crate::users::{ADA, signed_in, signed_in_with_key, status};

/// Every form of the console, with valid fields.
pub fn forms(key: &str) -> Vec<(String, Vec<(&'static str, &'static str)>)> {
    let form = |path: &str, fields: &[(&'static str, &'static str)]| (path.to_owned(), fields.to_vec());
    vec![
        form("/sign-up", &[("email", "eve@evil.example"), ("password", PASSWORD)]),
        form("/sign-in", &[("email", ADA), ("password", PASSWORD)]),
        form("/sign-out", &[]),
        form("/account/password", &[("current", PASSWORD), ("new", "chosen by another site")]),
        form("/account/delete", &[("password", PASSWORD)]),
        form("/keys/new", &[("name", "planted"), ("expiry", "never"), ("access", "write"), ("newest", "99")]),
        form(&format!("/keys/{key}/rotate"), &[("overlap", "0s"), ("newest", "99")]),
        form(&format!("/keys/{key}/revoke"), &[]),
        form("/animals/new", &[("name", "planted"), ("categoryId", "1"), ("status", "sold")]),
        form("/animals/2/order", &[]),
        form("/orders", &[("petId", "2")]),
        form("/orders/1/approve", &[]),
        form("/orders/1/cancel", &[]),
        form("/orders/steps", &[("step", "cancel"), ("order", "1")]),
        form("/messages", &[("message", "planted")]),
        form("/audit/link", &[("email", ADA)]),
        form("/reset", &[]),
    ]
}

#[tokio::test]
async fn cross_site_forms_are_rejected_without_effect() {
    let (service, mut ada, key) = signed_in_with_key().await;
    service.create_pets(2).await;
    assert_eq!(ada.post("/orders", &[("petId", "1")]).await.status(), 201);
    let id = ada.key_id().await;
    let state = || {
        [
            service.sql("SELECT group_concat(email || coalesce(password_hash, '')) FROM accounts"),
            service.sql("SELECT group_concat(concat(name, expires_at, revoked_at)) FROM api_keys"),
            service.sql("SELECT group_concat(id || ' ' || status) FROM pets"),
            service.sql("SELECT group_concat(pet_id || ' ' || status) FROM orders"),
            service.sql("SELECT count(*) FROM messages"),
            service.sql("SELECT group_concat(hex(token_hash)) FROM sessions"),
        ]
    };
    let before = state();
    let own = format!("http://{}", service.store_address);
    let refused = format!("This form was not sent from {own}, so nothing was changed.");
    let nearly_own = format!("{own}.evil.example");
    let origins =
        [None, Some(&*own), Some("https://evil.example"), Some("http://127.0.0.1:1"), Some("null"), Some(&*nearly_own)];
    let foreign: Vec<(Option<&str>, Option<&str>)> =
        [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")]
            .into_iter()
            .flat_map(|site| origins.map(|origin| (site, origin)))
            // The site decides, or if it is missing, the origin.
            .filter(|(site, origin)| site.map_or(*origin != Some(&*own), |site| site != "same-origin"))
            .collect();
    assert_eq!(foreign.len(), 5 + 3 * 6);
    for (path, fields) in forms(&id) {
        for (site, origin) in &foreign {
            for content_type in
                ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "application/json"]
            {
                let mut request = ada.request("POST", &path);
                if let Some(site) = site {
                    request = request.header("sec-fetch-site", site);
                }
                if let Some(origin) = origin {
                    request = request.header("origin", origin);
                }
                let answer = match content_type {
                    "application/x-www-form-urlencoded" => request.form(&fields),
                    other => request.header("content-type", other).body("x"),
                };
                let answer = answer.send().await;
                assert_eq!(answer.status(), 403, "{path} {site:?} {origin:?} {content_type}");
                assert!(answer.body.contains(&refused) && answer.header("set-cookie").is_none());
            }
        }
    }
    assert_eq!(state(), before);
    let each = foreign.len() * 4;
    println!("measured: {} forms, each sent in {each} ways of another site: all refused", forms(&id).len());
    assert_eq!(status(&service, &key).await, 200);
}

#[tokio::test]
async fn get_requests_change_nothing() {
    let (service, mut ada) = signed_in().await;
    ada.key("laptop").await;
    let id = ada.key_id().await;
    let version = service.store.version();
    for (path, _) in forms(&id) {
        let opened = ada.get(&path).await;
        assert_eq!(ada.request("HEAD", &path).send().await.status(), opened.status(), "{path}");
        if opened.status() == 303 {
            let is_step = path.starts_with("/orders/");
            assert!(!is_step || opened.header("location").unwrap().ends_with("/orders"), "{path}");
            let to = opened.header("location").unwrap().trim_start_matches("../").trim_start_matches("./");
            assert_eq!(ada.get(&format!("/{to}")).await.status(), 200, "{path} leads to {to}");
        } else {
            assert_eq!(opened.status(), 200, "{path}");
        }
    }
    assert!(ada.is_signed_in().await, "a GET of /sign-out does not sign out");
    for path in ["/", "/keys", "/animals", "/orders", "/messages", "/requests", "/audit", "/account", "/docs"] {
        assert_eq!(ada.get(path).await.status(), 200, "{path}");
    }
    assert_eq!(service.store.version(), version, "nothing was committed");
    println!("measured: GET of every page and form changes nothing");
}

#[tokio::test]
async fn only_forms_of_limited_size_are_accepted() {
    let (service, mut ada) = signed_in().await;
    let own = format!("http://{}", service.store_address);
    let request = || ada.request("POST", "/messages").header("origin", &own);
    assert_eq!(request().json(r#"{"message":"Hello"}"#).send().await.status(), 415);
    assert_eq!(request().body("message=Hello").send().await.status(), 415);
    let large = format!("message={}", "x".repeat(128 * 1024));
    let type_ = "application/x-www-form-urlencoded";
    assert_eq!(request().header("content-type", type_).body(large).send().await.status(), 413);

    let longest = "🦊".repeat(10_000);
    assert_eq!(ada.post("/messages", &[("message", &longest)]).await.status(), 202);
}
