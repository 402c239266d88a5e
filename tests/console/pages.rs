//! Properties of every page.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use petstore::api::{Listener, ListenerService};
use petstore::console;
use testkit::console::PASSWORD;
use testkit::{ConsoleUser, Request, until};

use crate::service::{REMOVAL, Service};
use crate::users::{ADA, signed_in};

/// The pages of the console that a user can open, and a page of the reference.
pub const PAGES: [&str; 12] = [
    "/", "/account", "/account/delete", "/animals", "/animals/new", "/audit", "/keys", "/keys/new", "/messages",
    "/orders", "/requests", "/docs/deprecations",
];

#[tokio::test]
async fn pages_are_small_and_self_contained() {
    let (service, mut ada) = signed_in().await;
    // As full as ordinary use makes them.
    for number in 0..30 {
        ada.key(&format!("key number {number}")).await;
        ada.post("/messages", &[("message", &"A message of some length. ".repeat(40))]).await;
        ada.post("/orders", &[("petId", &number.to_string())]).await;
        service.post("/v1/pets", r#"{"name":"Sir Barksalot the Third","categoryId":1234567890}"#).await;
    }
    let mut strangers = ConsoleUser::new(&service);
    let mut pages = vec![strangers.get("/").await, strangers.get("/sign-in").await, strangers.get("/sign-up").await];
    for path in PAGES {
        pages.push(ada.get(path).await);
    }
    let missing = ada.get("/keys/99/revoke").await;
    assert_eq!(missing.status(), 404);
    for page in pages.into_iter().chain([missing]) {
        assert!([200, 404].contains(&page.status()));
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.body.len() < 32 * 1024, "{} bytes: {}", page.body.len(), &page.body[..200]);
        let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
        assert_eq!(page.header("content-security-policy"), Some(policy));
        for inline in ["<style", " style=", "<script>", " onclick=", "javascript:"] {
            assert!(!page.body.contains(inline), "{inline}");
        }
        for loaded in
            page.body.split(['"', ' ']).filter(|part| part.contains("docs/petstore.") || part.ends_with(".js"))
        {
            let file = loaded.trim_start_matches(['.', '/']);
            assert_eq!(service.request("HEAD", &format!("/{file}")).send().await.status(), 200, "{loaded}");
        }
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    }
}

#[tokio::test]
async fn signed_out_users_are_redirected_to_sign_in() {
    let service = Service::start().await;
    let mut somebody = ConsoleUser::new(&service);
    for path in &PAGES[1..11] {
        let answer = somebody.get(path).await;
        let up = "../".repeat(path.matches('/').count() - 1);
        let root = if up.is_empty() { "./".to_owned() } else { up };
        let to = format!("{root}sign-in?page={}", path[1..].replace('/', "%2F"));
        assert_eq!((answer.status(), answer.header("location")), (303, Some(&*to)), "{path}");
    }
    for (path, _) in crate::cross_site::forms("1").iter().filter(|(path, _)| !path.starts_with("/sign-")) {
        // A redirect would lose what was typed.
        let refused = somebody.post(path, &[]).await;
        assert_eq!(refused.status(), 403, "{path}");
        assert!(refused.body.contains("reload this page to send the form again"), "{path}: {}", refused.body);
    }
}

#[tokio::test]
async fn sign_in_leads_back_to_the_requested_page() {
    let (service, _) = signed_in().await;
    for (page, destination) in [
        ("animals?status=sold", "./animals?status=sold"),
        (
            "audit?action=key.revoke&account=ada%2Bcats%40example.com",
            "./audit?action=key.revoke&account=ada%2Bcats%40example.com",
        ),
        ("reset", "./reset"),
        ("", "./"),
        // Not pages that require a session.
        ("//example.com", "./"),
        ("https://example.com", "./"),
        ("keys\r\nset-cookie:a", "./"),
        ("keys/../../elsewhere", "./"),
    ] {
        let mut somebody = ConsoleUser::new(&service);
        let encoded = page.replace('%', "%25").replace('/', "%2F").replace('?', "%3F").replace('&', "%26");
        let address = format!("/sign-in?page={}", encoded.replace("\r\n", "%0D%0A"));
        let opened = somebody.get(&address).await;
        let again = somebody.post("/sign-in", &[("email", ADA), ("password", ""), ("page", page)]).await;
        for form in [opened.body, again.body] {
            let field =
                format!(r#"name="page" value="{}""#, destination.trim_start_matches("./").replace('&', "&#38;"));
            assert_eq!(form.contains(&field), destination != "./", "{form}");
        }
        let answer = somebody.post("/sign-in", &[("email", ADA), ("password", PASSWORD), ("page", page)]).await;
        assert_eq!((answer.status(), answer.header("location")), (303, Some(destination)));
        assert_eq!(somebody.get(&address).await.header("location"), Some(destination), "already signed in");
    }
}

#[tokio::test]
async fn not_found_is_a_page_in_the_console_and_json_elsewhere() {
    let (service, mut ada) = signed_in().await;
    for path in [
        "/keys/x/revoke", "/keys/%ff/rotate", "/keys/99/rotate", "/keys/", "/keys/1", "/animals/1", "/orders/1",
        "/sign-in/x", "/account/x", "/requests/x", "/requests/1",
    ] {
        let page = ada.get(path).await;
        assert_eq!((page.status(), page.header("content-type")), (404, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.body.contains("Sign out"), "the page is one of the console: {}", page.body);
    }
    assert!(ada.get("/keys/99/revoke").await.body.contains("You have no API key with this id."));
    let page = ada.post("/orders/%ff/approve", &[]).await;
    assert_eq!(page.status(), 404, "{}", page.body);
    let page =
        ada.request("DELETE", "/keys").header("origin", &format!("http://{}", service.store_address)).send().await;
    assert_eq!((page.status(), page.header("allow")), (405, Some("GET,HEAD")));
    assert!(page.body.contains("<h1>Method not allowed</h1>"), "{}", page.body);

    for path in ["/pets", "/order", "/v1/keys", "/admin", "/signup", "/keysx"] {
        assert_eq!(ada.get(path).await.code(), "not_found", "{path}");
    }
    let nothing = async |path: &str, accept: &str| ada.request("GET", path).header("accept", accept).send().await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
    for path in ["/pets", "/admin", "/a/b/c/d/e", "/docs/nothing", "/livez/x", "/v10"] {
        let page = nothing(path, browser).await;
        assert_eq!((page.status(), page.header("content-type")), (404, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.body.contains("<h1>Not found</h1>"), "{}", page.body);
        for client in ["*/*", "application/json", "image/avif,image/webp"] {
            assert_eq!(nothing(path, client).await.code(), "not_found", "{path} {client}");
        }
    }
    for path in ["/v1", "/v1/", "/v1/keys", "/v1/pets/"] {
        assert_eq!(nothing(path, browser).await.code(), "not_found", "{path}");
    }
    let deep = ada.get(&format!("/keys{}", "/".repeat(30_000))).await;
    assert_eq!(deep.code(), "not_found", "the links of a page so deep would be long");
    for listener in [service.messages_address, service.ops_address] {
        for path in ["/", "/keys", "/sign-in", "/messages"] {
            assert_eq!(Request::new(listener, "GET", path).send().await.code(), "not_found", "{listener} {path}");
        }
    }
}

#[tokio::test]
async fn overview_shows_the_state_of_the_store() {
    let (service, mut ada) = signed_in().await;
    let page = ada.get("/").await.body;
    assert!(page.contains("create an API key") && page.contains("No requests in the last hour."), "{page}");
    service.create_pets(3).await;
    let sold = petstore::api::parse_new_pet(r#"{"name":"Rex","categoryId":1,"status":"sold"}"#).unwrap();
    service.store.import_pets(Box::new(std::iter::repeat_n(Ok(sold), 1_234))).await.unwrap();
    let key = ada.key("laptop").await;
    assert!(ada.get("/").await.body.contains(r#"<a href="./requests">Your latest requests</a>"#));
    service.request("GET", "/v1/pets/7777").key(&key).send().await;

    // The first count is kept if it took long.
    until(async || ada.get("/").await.body.contains(r#"<span class="figure">1,234</span>"#)).await;
    let page = ada.get("/").await.body;
    for (figure, words) in [("3", "available"), ("0", "pending"), ("1,234", "sold")] {
        let card = format!("<span class=\"figure\">{figure}</span> <span class=\"status {words}\">{words}</span>");
        assert!(page.contains(&card), "{card} is not in {page}");
    }
    // A minute may have ended since the requests, or between them.
    let caption = " in the busiest minute, <span class=\"failed\">1 failed</span>";
    for shown in ["4 in total, ", caption, r#"y="0" width="8" height="100"/>"#, r#"<rect class="failed" x=""#] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    assert!(page.contains("will be removed on <time datetime=\"2030-12-05\">5 December 2030</time>"), "{page}");
    let link = r#"<a href="./requests?result=failed">1 of your latest requests failed</a>"#;
    let address = format!("http://{}/v1", service.messages_address);
    for shown in ["staging", env!("CARGO_PKG_VERSION"), "SQLite 3.", &address, link] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    assert!(!page.contains("create an API key"));

    service.clock.set(REMOVAL);
    ada.sign_in(ADA, testkit::console::PASSWORD).await;
    assert!(!ada.get("/").await.body.contains("is deprecated and is removed"), "the operation is removed");
}

#[tokio::test]
async fn reference_is_the_same_for_every_user_and_deprecations_are_a_page() {
    let (service, mut ada) = signed_in().await;
    let page = ada.get("/docs").await;
    assert_eq!(page.body, ConsoleUser::new(&service).get("/docs").await.body);
    assert!(!page.body.contains(ADA) && page.header("set-cookie").is_none(), "{}", page.shown());

    let page = ada.get("/docs/deprecations").await;
    assert!(page.body.contains(ADA) && page.body.contains("Sign out"), "{}", page.body);
    assert_eq!(page.header("cache-control"), Some("private, no-cache"));
    assert!(ConsoleUser::new(&service).get("/docs/deprecations").await.body.contains("Sign in"));
}

#[tokio::test]
async fn panic_shows_an_error_page() {
    let (service, ada) = signed_in().await;
    let pages = Router::new().route("/keys/new", get(async || -> () { panic!("the secret cause") }));
    let pages = console::framed(&service.app.console, pages).with_state(service.app.console.clone());
    let listener = ListenerService::new(Listener::Store, &service.api, Some(pages));
    let request = http::Request::builder().uri("/keys/new").header("host", "x").header("cookie", ada.cookie.unwrap());

    let response = listener.answer(request.body(Body::empty()).unwrap(), Ipv4Addr::LOCALHOST.into()).await.unwrap();

    assert_eq!(
        (response.status(), response.headers()["content-type"].to_str().unwrap()),
        (StatusCode::INTERNAL_SERVER_ERROR, "text/html; charset=utf-8")
    );
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains("<h1>Something went wrong</h1>") && body.contains("Sign out"), "{body}");
    assert!(!body.contains("secret"), "{body}");
}

#[tokio::test]
async fn missing_database_shows_an_error_page() {
    let (service, mut ada) = signed_in().await;
    service.store.close().await;
    let page = ada.get("/keys").await;
    assert_eq!((page.status(), page.header("retry-after")), (503, Some("1")));
    assert!(page.body.contains("The store is temporarily unavailable."), "{}", page.body);
    assert_eq!(ada.get("/docs").await.status(), 200, "the reference needs no database");
}
