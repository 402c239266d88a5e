//! The API reference in a real browser.

use petstore::api::Operation;
use testkit::until;

use crate::browser::{Browser, Scripts};
use crate::service::{Service, Setup};
use crate::stories::{CUT_OFF, ENTER};

/// As WebDriver writes it (WebDriver, section 17.4.2).
const ESCAPE: &str = "\u{e00c}";

/// The form of a request.
const DIALOG: &str = "[role=dialog]";

#[tokio::test]
async fn reference_calls_both_base_addresses() {
    // Bound to every address, so the page must call the host by which it was opened.
    let service = Service::start_with(Setup { any_host: true, ..Setup::default() }).await;
    let ada = Browser::start(&service, Scripts::On).await.at_host("localhost");
    ada.set_width(1280).await;
    ada.open("/docs").await;

    open_request(&ada, "pets/POST/pets").await;
    send(&ada, "missing_api_key").await;
    ada.type_into(&format!("{DIALOG} .scalar-password-input"), &service.key).await;
    // Each request has another `Idempotency-Key`.
    for animals in 1..=2 {
        send(&ada, "201 Created").await;
        until(async || service.store.count_pets().await.unwrap() == animals).await;
    }

    close_request(&ada).await;

    // JavaScript would round this category.
    service.post("/v1/pets", r#"{"name":"Mimi","categoryId":9223372036854775807}"#).await;
    open_request(&ada, "pets/GET/pets").await;
    send(&ada, r#""categoryId": 9223372036854775807"#).await;
    close_request(&ada).await;

    open_request(&ada, "messages/POST/messages").await;
    send(&ada, "202 Accepted").await;
    ada.type_into(&format!("{DIALOG} #Prefer td:nth-child(3) [contenteditable]"), "code=503").await;
    send(&ada, "503 Service Unavailable").await;

    let kept = ada.evaluate("return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])").await;
    assert!(!kept.as_str().unwrap().contains(&service.key), "a key is forgotten with the page: {kept}");
    let called = ada.evaluate("return performance.getEntriesByType('resource').map(entry => entry.name)").await;
    for address in called.as_array().unwrap() {
        assert!(address.as_str().unwrap().starts_with("http://localhost:"), "{address}");
    }
    ada.close().await;
}

#[tokio::test]
async fn reference_shows_every_operation_in_the_colours_of_the_system() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    ada.open("/docs").await;
    for operation in Operation::documented() {
        let link = format!("a[href$='{}{}']", operation.method(), operation.api_path());
        assert!(ada.count(&link).await > 0, "{operation:?} is not on the page");
    }
    assert!(ada.count(".endpoint-path.deprecated").await > 0);
    ada.is_shown(".scalar-app").await;
    for (scheme, colour) in [("dark", "rgb(28, 32, 34)"), ("light", "rgb(255, 255, 255)")] {
        ada.set_scheme(scheme).await;
        assert!(ada.is_shown(&format!("body.{scheme}-mode")).await);
        let shown = "return getComputedStyle(document.querySelector('.scalar-app')).backgroundColor";
        assert_eq!(ada.evaluate(shown).await, colour);
    }
    ada.close().await;
}

#[tokio::test]
async fn operation_fits_on_a_screen() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    ada.set_width(1280).await;
    ada.open("/docs#tag/pets/POST/pets").await;
    let heading = "document.querySelector('[id$=\"tag/pets/POST/pets\"] h3')";
    // The page may be replacing the section just now.
    let parts = "[...document.querySelector('[id$=\"tag/pets/POST/pets\"]')
        ?.querySelectorAll('h3, .show-api-client-button, .response-card, [id$=\"body.status\"]') ?? []]";
    let found = format!(
        "{heading}?.closest('section').scrollIntoView();
         const parts = {parts};
         return [parts.length, parts.map(part => part.getBoundingClientRect())
            .filter(box => box.top < 0 || box.bottom > innerHeight).length]"
    );
    until(async || ada.evaluate(&found).await == serde_json::json!([4, 0])).await;
    let text = ada.text("#content").await;
    assert!(!text.contains("922337203685477"), "{text}");

    for operation in ["pets/POST/pets", "pets/GET/pets", "store/POST/store/orders", "messages/POST/messages"] {
        ada.set_width(375).await;
        ada.open(&format!("/docs#tag/{operation}")).await;
        ada.is_shown(&test_button(operation)).await;
        assert_eq!(ada.evaluate(CUT_OFF).await, 0, "{operation}");
        let cut_off = "return [...document.querySelectorAll('#content main pre, #content main [role=tablist]')]
            .filter(box => box.scrollWidth > box.clientWidth).map(box => box.textContent)";
        assert_eq!(ada.evaluate(cut_off).await, serde_json::json!([]), "{operation}");
    }
    ada.close().await;
}

#[tokio::test]
async fn request_is_sent_with_the_keyboard_alone() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    ada.set_width(1280).await;
    ada.open("/docs#tag/pets/POST/pets").await;
    let button = test_button("pets/POST/pets");
    ada.is_shown(&button).await;
    ada.evaluate(&format!("document.querySelector({button:?}).focus()")).await;
    ada.press(ENTER).await;
    until(async || ada.is_shown(DIALOG).await).await;
    ada.evaluate(&format!("{SEND_BUTTON}.focus()")).await;
    ada.press(ENTER).await;
    until(async || ada.text(DIALOG).await.contains("401 Unauthorized")).await;
    close_request(&ada).await;
    ada.close().await;
}

const SEND_BUTTON: &str = "[...document.querySelectorAll('[role=dialog] button')].find(button => /Send \\w+ request to/.test(button.textContent))";

/// Opens the form of a request.
pub async fn open_request(browser: &Browser, operation: &str) {
    browser.evaluate(&format!("location.hash = 'tag/{operation}'")).await;
    browser.click(&test_button(operation)).await;
    until(async || browser.is_shown(DIALOG).await).await;
}

pub async fn close_request(browser: &Browser) {
    browser.press(ESCAPE).await;
    until(async || !browser.is_shown(DIALOG).await).await;
}

/// Sends the request of the form, and waits for a response.
pub async fn send(browser: &Browser, expected: &str) {
    browser.evaluate(&format!("{SEND_BUTTON}.click()")).await;
    until(async || browser.text(DIALOG).await.contains(expected)).await;
}

fn test_button(operation: &str) -> String {
    format!("[id$='tag/{operation}'] .show-api-client-button")
}
