//! axe finds no violation on any page, in both colour schemes, on wide and narrow screens.

use serde_json::Value;

use crate::browser::{Browser, Scripts};
use crate::pages::PAGES;
use crate::reference;
use crate::users::{ADA, make_staff};

/// The violations that no page may have, not even in code of others.
const SERIOUS: &[&str] = &["serious", "critical"];

#[tokio::test]
async fn no_page_has_an_axe_violation() {
    let (service, browser) = Browser::with_service(Scripts::On).await;
    let axe = axe();
    for path in ["/", "/sign-up", "/sign-in", "/docs/deprecations"] {
        browser.open(path).await;
        check(&browser, &axe, path).await;
    }
    browser.open("/sign-up").await;
    browser.follow("main button").await;
    check(&browser, &axe, "a form that was refused").await;

    browser.sign_up(ADA).await;
    for path in ["/", "/keys", "/animals", "/orders", "/messages", "/requests"] {
        browser.open(path).await;
        check(&browser, &axe, &format!("{path}, empty")).await;
    }
    for status in ["available", "pending", "sold"] {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":1,"status":"{status}"}}"#)).await;
    }
    browser.submit("/animals/new", &[("name", "Mimi"), ("categoryId", "1")]).await;
    check(&browser, &axe, "an animal that was added").await;
    browser.reload().await;
    check(&browser, &axe, "an animal whose form came twice").await;
    for (animal, page) in [("4", "an order that was placed"), ("4", "an order that was refused"), ("x", "no animal")] {
        browser.submit("/orders", &[("petId", animal)]).await;
        check(&browser, &axe, page).await;
    }
    browser.submit("/messages", &[("message", "Hello, store!")]).await;
    check(&browser, &axe, "a message that was sent").await;
    for name in ["one", "two"] {
        browser.submit("/keys/new", &[("name", name)]).await;
    }
    check(&browser, &axe, "a key that was made").await;
    let key = browser.text("#key").await;
    for (path, preference) in [("/v1/pets", "code=503"), ("/v1/pets/1", ""), ("/v1/pets?limit=0", "")] {
        service.request("GET", path).key(&key).header("prefer", preference).send().await;
    }
    service.request("POST", "/v1/pets").key(&key).json("{}").send().await;
    browser.open("/requests").await;
    browser.follow("tbody th a").await;
    check(&browser, &axe, "a request").await;
    browser.submit("/keys/new", &[("name", "three")]).await;
    let last = browser.text("#key").await;
    browser.reload().await;
    check(&browser, &axe, "a form that came twice").await;
    browser.open("/keys").await;
    browser.follow("tbody .row-actions a").await;
    check(&browser, &axe, "a key to rotate").await;
    browser.open("/keys").await;
    browser.follow("a.danger").await;
    check(&browser, &axe, "a key to revoke").await;
    browser.follow("main button").await;
    check(&browser, &axe, "a key that was revoked").await;
    service.request("GET", "/v1/pets").key(&last).send().await;
    make_staff(&service, ADA).await;
    for path in PAGES.into_iter().chain(["/keys/99/revoke", "/keys?status=expired", "/animals?from=0"]) {
        browser.open(path).await;
        browser.evaluate("for (const one of document.querySelectorAll('details')) one.open = true").await;
        check(&browser, &axe, path).await;
    }
    browser.close().await;
}

#[tokio::test]
async fn reference_has_no_serious_axe_violation() {
    let (_service, browser) = Browser::with_service(Scripts::On).await;
    let axe = axe();
    browser.open("/docs#tag/pets/POST/pets").await;
    reference::open_request(&browser, "pets/POST/pets").await;
    reference::send(&browser, "401 Unauthorized").await;
    check_with(&browser, &axe, "a request of the reference", SERIOUS).await;
    reference::close_request(&browser).await;
    check_with(&browser, &axe, "the reference", SERIOUS).await;
    browser.close().await;
}

/// Checks a page that we wrote.
async fn check(browser: &Browser, axe: &str, page: &str) {
    check_with(browser, axe, page, &["minor", "moderate", "serious", "critical"]).await;
}

async fn check_with(browser: &Browser, axe: &str, page: &str, impacts: &[&str]) {
    browser.evaluate(&format!("if (!window.axe) {{ {axe} }}")).await;
    // Colours depend on the scheme only, and the layout on the width only.
    for (scheme, width) in [("light", 1100), ("dark", 360)] {
        browser.set_scheme(scheme).await;
        browser.set_width(width).await;
        // The page learns of a new scheme with the next frame.
        browser.evaluate("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))").await;
        let found = browser
            .evaluate("return JSON.stringify((await axe.run({ resultTypes: ['violations'] })).violations)")
            .await;
        let found: Vec<Value> = serde_json::from_str(found.as_str().unwrap()).unwrap_or_else(|_| panic!("{found}"));
        let found: Vec<_> = found
            .iter()
            .filter(|violation| violation["impact"].as_str().is_none_or(|impact| impacts.contains(&impact)))
            .flat_map(|violation| {
                let nodes = violation["nodes"].as_array().unwrap();
                nodes.iter().map(|node| format!("{}: {} {}", violation["help"], node["html"], node["failureSummary"]))
            })
            .collect();
        assert!(found.is_empty(), "{page}, {scheme}, {width} pixels:\n{}", found.join("\n"));
    }
}

/// The source of axe, which `scripts/test` installs.
fn axe() -> String {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/npm/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{error}: {} is missing: run scripts/test, which installs it", path.display()))
}
