//! axe finds no violation on any page, in both colour schemes, on wide and narrow screens.

use serde_json::Value;

use crate::browser::{Browser, Scripts};
use crate::pages::PAGES;
use crate::reference;
use crate::users::{ADA, make_staff};

/// Schemes and widths in pixels. Colours depend on the scheme only, and the layout on the width only.
const SCREENS: [(&str, u32); 2] = [("light", 1100), ("dark", 360)];

#[tokio::test]
async fn no_page_has_an_axe_violation() {
    let (service, browser) = Browser::with_service(Scripts::On).await;
    browser.run_on_each_page(&axe()).await;
    for path in ["/", "/sign-in", "/docs/deprecations", "/sign-up"] {
        browser.open(path).await;
        check(&browser, path).await;
    }
    browser.follow("main button").await;
    check(&browser, "a form that was refused").await;

    browser.sign_up(ADA).await;
    for path in ["/", "/keys", "/animals", "/orders", "/messages", "/requests"] {
        browser.open(path).await;
        check(&browser, &format!("{path}, empty")).await;
    }
    for status in ["available", "pending", "sold"] {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":1,"status":"{status}"}}"#)).await;
    }
    browser.submit("/animals/new", &[("name", "Mimi"), ("categoryId", "1")]).await;
    check(&browser, "an animal that was added").await;
    browser.reload().await;
    check(&browser, "an animal whose form came twice").await;
    for (animal, page) in [("4", "an order that was placed"), ("4", "an order that was refused"), ("x", "no animal")] {
        browser.submit("/orders", &[("petId", animal)]).await;
        check(&browser, page).await;
    }
    browser.submit("/messages", &[("message", "Hello, store!")]).await;
    check(&browser, "a message that was sent").await;
    for name in ["one", "two"] {
        browser.submit("/keys/new", &[("name", name)]).await;
    }
    check(&browser, "a key that was made").await;
    let key = browser.text("#key").await;
    for (path, preference) in [("/v1/pets", "code=503"), ("/v1/pets/1", ""), ("/v1/pets?limit=0", "")] {
        service.request("GET", path).key(&key).header("prefer", preference).send().await;
    }
    service.request("POST", "/v1/pets").key(&key).json("{}").send().await;
    browser.open("/requests").await;
    browser.follow("tbody th a").await;
    check(&browser, "a request").await;
    browser.submit("/keys/new", &[("name", "three")]).await;
    let last = browser.text("#key").await;
    browser.reload().await;
    check(&browser, "a form that came twice").await;
    browser.open("/keys").await;
    browser.follow("tbody .row-actions a").await;
    check(&browser, "a key to rotate").await;
    browser.open("/keys").await;
    browser.follow("a.danger").await;
    check(&browser, "a key to revoke").await;
    browser.follow("main button").await;
    check(&browser, "a key that was revoked").await;
    service.request("GET", "/v1/pets").key(&last).send().await;
    make_staff(&service, ADA).await;
    for path in PAGES.into_iter().chain(["/keys/99/revoke", "/keys?status=expired", "/animals?from=0"]) {
        browser.open(path).await;
        browser.evaluate("for (const one of document.querySelectorAll('details')) one.open = true").await;
        check(&browser, path).await;
    }
    browser.close().await;
}

#[tokio::test]
async fn reference_has_no_serious_axe_violation() {
    let (_service, browser) = Browser::with_service(Scripts::On).await;
    browser.run_on_each_page(&axe()).await;
    browser.open("/docs#tag/pets/POST/pets").await;
    let serious = ["serious", "critical"]; // The reference is code of others, of which only these count.
    for screen in SCREENS {
        show(&browser, screen).await;
        reference::open_request(&browser, "pets/POST/pets").await;
        reference::send(&browser, "401 Unauthorized").await;
        assert_accessible(&browser, &format!("a request of the reference, {screen:?}"), &serious).await;
        reference::close_request(&browser).await;
        assert_accessible(&browser, &format!("the reference, {screen:?}"), &serious).await;
        browser.reload().await;
    }
    browser.close().await;
}

/// Checks a page that we wrote.
async fn check(browser: &Browser, page: &str) {
    for screen in SCREENS {
        show(browser, screen).await;
        assert_accessible(browser, &format!("{page}, {screen:?}"), &["minor", "moderate", "serious", "critical"]).await;
    }
}

async fn show(browser: &Browser, (scheme, width): (&str, u32)) {
    browser.set_scheme(scheme).await;
    browser.set_width(width).await;
    // The page learns of a new scheme with the next frame.
    browser.evaluate("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))").await;
}

/// Fails if the page has violations of these impacts.
async fn assert_accessible(browser: &Browser, page: &str, impacts: &[&str]) {
    let found =
        browser.evaluate("return JSON.stringify((await axe.run({ resultTypes: ['violations'] })).violations)").await;
    let found: Vec<Value> = serde_json::from_str(found.as_str().unwrap()).unwrap_or_else(|_| panic!("{found}"));
    let found: Vec<_> = found
        .iter()
        .filter(|violation| violation["impact"].as_str().is_none_or(|impact| impacts.contains(&impact)))
        .flat_map(|violation| {
            let nodes = violation["nodes"].as_array().unwrap();
            nodes.iter().map(|node| format!("{}: {} {}", violation["help"], node["html"], node["failureSummary"]))
        })
        .collect();
    assert!(found.is_empty(), "{page}:\n{}", found.join("\n"));
}

/// The source of axe, which `scripts/test` installs.
fn axe() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/npm/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}: run scripts/test, which installs it"))
}
