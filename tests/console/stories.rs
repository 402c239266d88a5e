//! Stories of users in a real browser.

use std::process::Command;

use testkit::Request;
use testkit::console::PASSWORD;

use crate::browser::{Browser, Scripts};
use crate::pages::PAGES;
use crate::service::Service;
use crate::users::{ADA, make_staff, status};

/// Keys as WebDriver writes them (WebDriver, section 17.4.2).
const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";

/// Script that returns by how many pixels a page is wider than the screen.
pub const CUT_OFF: &str =
    "const { scrollWidth, clientWidth } = document.documentElement; return scrollWidth - clientWidth";

#[tokio::test]
async fn sign_up_create_and_revoke_a_key() {
    let (service, ada) = Browser::with_service(Scripts::On).await;
    ada.open("/").await;
    assert_eq!(ada.text("h1").await, "An animal store with an API");
    ada.follow("main a.primary").await;
    ada.type_into("#email", ADA).await;
    ada.type_into("#password", PASSWORD).await;
    ada.follow("main button").await;
    assert_eq!((ada.path().await.as_str(), ada.text("h1").await.as_str()), ("/", "Overview"));

    ada.follow(".callout a").await;
    ada.type_into("#name", "laptop").await;
    ada.follow("main button").await;
    let key = ada.text("#key").await;
    let lines = format!("{}\n{}", ada.text("#export").await, ada.text("#try-curl").await);
    assert_eq!(status(&service, &key).await, 200);
    assert!(key.starts_with("pet_test_") && lines.starts_with(&format!("export KEY={key}\n")), "{lines}");
    let curl = move || Command::new("sh").args(["-c", &lines]).env("NO_PROXY", "127.0.0.1").output().unwrap();
    let output = tokio::task::spawn_blocking(curl).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.ends_with("\r\n\r\n[]"), "the lines work in a shell: {printed}");

    ada.allow_clipboard().await;
    ada.click("[data-copy=key]").await;
    let copied = ada.evaluate("for (let i = 0; i < 1200 && document.querySelector('[data-copy=key]').textContent !== 'Copied'; i++) await new Promise(after => setTimeout(after, 50)); return `${await navigator.clipboard.readText()} ${document.querySelector('[data-copy=key] + [role=status]').textContent}`").await;
    assert_eq!(copied, format!("{key} Copied"));

    ada.reload().await;
    let warning = ada.text(".warning").await;
    assert!(warning.starts_with("No key was created. The key laptop, "), "{warning}");
    assert_eq!(ada.evaluate(&format!("return document.documentElement.textContent.includes('{key}')")).await, false);

    ada.open("/keys").await;
    assert_eq!(ada.evaluate("return document.querySelectorAll('tbody tr').length").await, 1);
    assert_eq!(ada.text("tbody th").await, "laptop");
    ada.follow("a.danger").await;
    assert_eq!(ada.text("h1").await, "Revoke laptop?");
    assert_eq!(status(&service, &key).await, 200, "not revoked before the confirmation");
    ada.follow("main button").await;

    assert_eq!(ada.text("[role=status]").await, "The key was revoked. It no longer works.");
    assert_eq!(ada.text("tbody .badge").await, "revoked");
    assert_eq!(status(&service, &key).await, 401);
    ada.close().await;
}

#[tokio::test]
async fn console_works_without_scripts() {
    let (service, ada) = Browser::with_service(Scripts::Off).await;
    ada.sign_up(ADA).await;
    make_staff(&service, ADA).await;

    ada.submit("/keys/new", &[("name", "laptop")]).await;
    let key = ada.text("#key").await;
    assert!(!ada.is_shown("[data-copy=key]").await, "the button needs scripts");
    assert_eq!(status(&service, &key).await, 200);

    ada.submit("/animals/new", &[("name", "Rex"), ("categoryId", "3")]).await;
    assert!(ada.text("#answer").await.starts_with("HTTP/1.1 201 Created"));
    ada.follow("main .actions a").await;
    assert_eq!(ada.text("tbody th").await, "Rex");
    ada.click(".api summary").await;
    assert!(ada.text("#answer").await.contains(r#""name":"Rex""#));

    ada.open("/animals").await;
    ada.follow("tbody .row-actions button").await;
    assert!(ada.text("[role=status]").await.starts_with("Order 1 is now placed. \u{2068}Rex\u{2069} (animal 1) is"));
    assert!(ada.text("#answer").await.starts_with("HTTP/1.1 201 Created"));
    for (button, said) in [
        ("approve", "Order 1 is now approved. \u{2068}Rex\u{2069} (animal 1) is pending."),
        ("deliver", "Order 1 is now delivered. \u{2068}Rex\u{2069} (animal 1) is sold."),
    ] {
        assert_eq!(ada.text("tbody button").await, button);
        ada.follow("tbody button").await;
        assert!(ada.text("[role=status]").await.starts_with(said), "{said}");
    }
    ada.open("/animals").await;
    assert_eq!(ada.text("tbody .status").await, "sold");

    ada.submit("/messages", &[("message", "Hello, store!")]).await;
    assert_eq!(ada.text(".message").await, "Hello, store!");

    ada.open("/keys").await;
    ada.follow("tbody .row-actions a").await;
    ada.follow("main button").await;
    assert_ne!(ada.text("#key").await, key);

    ada.follow("header button").await;
    assert_eq!(ada.text("[role=status]").await, "You have signed out.");
    ada.open("/docs").await;
    assert!(ada.text("main").await.contains("The reference needs JavaScript."));
    ada.close().await;
}

#[tokio::test]
async fn double_click_sends_a_form_once() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    ada.sign_up(ADA).await;
    for (path, field, text) in [("/keys/new", "#name", "laptop"), ("/account", "#current", PASSWORD)] {
        ada.open(path).await;
        ada.type_into(field, text).await;
        // Counts what would be sent, so that the page stays.
        let sent = ada.evaluate(
            "const form = document.querySelector('form.panel'), button = form.querySelector('button');
            let sent = 0, allow;
            form.submit = () => sent++;
            // A busy machine may take longer than the second after which another click counts.
            const timeout = setTimeout;
            window.setTimeout = (call, time) => time < 1000 ? timeout(call, time) : (allow = call);
            document.addEventListener('submit', event => {
                if (!event.defaultPrevented) sent++;
                event.preventDefault();
            });
            button.click();
            while (!sent) await new Promise(after => setTimeout(after, 5));
            button.click();
            // A form that asked for its turn again would have done so before.
            await fetch('/sign-in/turn');
            const once = sent;
            allow();
            button.click();
            while (sent === once) await new Promise(after => setTimeout(after, 5));
            return [once, sent]",
        );
        assert_eq!(sent.await, serde_json::json!([1, 2]), "{path}");
    }
    ada.close().await;
}

#[tokio::test]
async fn reload_after_a_form_sends_nothing_twice() {
    let service = Service::start().await;
    for (scripts, email) in [(Scripts::On, ADA), (Scripts::Off, "grace@hopper.example")] {
        let before = service.store.count_pets().await.unwrap();
        let browser = Browser::start(&service, scripts).await;
        browser.sign_up(email).await;
        let counts_once = async || {
            browser.reload().await;
            let said = browser.text("[role=status]").await;
            assert!(said.starts_with("This form was sent twice and counts once."), "{said}");
        };

        browser.submit("/animals/new", &[("name", "Rex"), ("categoryId", "3")]).await;
        assert_eq!(browser.text("[role=status]").await, format!("Animal {} was added.", before + 1));
        counts_once().await;
        assert_eq!(service.store.count_pets().await.unwrap(), before + 1, "one animal");

        browser.submit("/messages", &[("message", "Hello, store!")]).await;
        counts_once().await;
        assert_eq!(browser.count(".messages > li").await, 1);

        browser.open("/animals?status=available").await;
        browser.follow("tbody .row-actions button").await;
        counts_once().await;
        browser.follow("tbody button").await;
        counts_once().await;
        assert_eq!(browser.count("tbody tr").await, 1);
        assert_eq!(browser.text("tbody .status").await, "cancelled");

        // The form in the response sends another message.
        browser.open("/messages").await;
        for number in 2..4 {
            browser.type_into("#message", "Hello, store!").await;
            browser.follow("main button.primary").await;
            assert_eq!(browser.count(".messages > li").await, number);
        }
        browser.close().await;
    }
}

#[tokio::test]
async fn request_beside_a_form_follows_its_fields() {
    let (service, ada) = Browser::with_service(Scripts::On).await;
    ada.sign_up(ADA).await;
    let languages = ["curl", "typescript", "python", "go"];
    let shown = async |id: &str| ada.evaluate(&format!("return document.getElementById('{id}').textContent")).await;
    // The page has the same request before its script runs.
    let plain = Browser::start(&service, Scripts::Off).await;
    plain.submit("/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    for page in ["/animals/new", "/messages", "/orders"] {
        ada.open(page).await;
        plain.open(page).await;
        let body = |code: &str| code.lines().next_back().unwrap().to_owned();
        assert_eq!(body(&ada.text("#unsent-curl").await), body(&plain.text("#unsent-curl").await), "{page}");
    }
    plain.close().await;

    ada.open("/animals/new").await;
    ada.type_into("#name", "O'Malley \"Rex\"").await;
    ada.type_into("#categoryId", " 9007199254740993").await;
    ada.click("input[value=sold]").await;
    ada.click(".simulation summary").await;
    ada.click("option[value='delay=3000']").await;
    let mut unsent = Vec::new();
    for language in languages {
        unsent.push(shown(&format!("unsent-{language}")).await);
    }
    assert!(
        unsent[0].as_str().unwrap().contains("-H 'Prefer: delay=3000' \\\n  -d '{\"name\":\"O'\\''Malley "),
        "{unsent:?}"
    );
    ada.click("option[value='']").await;
    let without = shown("unsent-go").await;
    assert!(!without.as_str().unwrap().contains("Prefer"), "{without}");
    ada.click("option[value='delay=3000']").await;

    ada.follow("main button.primary").await;

    for (language, unsent) in languages.iter().zip(&unsent) {
        assert_eq!(&shown(&format!("request-{language}")).await, unsent, "the request that was shown was sent");
    }
    assert!(ada.is_shown("#request-curl").await && !ada.is_shown("#unsent-curl").await);
    ada.type_into("#name", "Mimi").await;
    assert!(!ada.is_shown("#request-curl").await && ada.is_shown("#unsent-curl").await);
    let rest = shown("unsent-curl").await;
    assert!(rest.as_str().unwrap().ends_with(r#"-d '{"name":"Mimi","status":"available"}'"#), "no example: {rest}");
    ada.close().await;
}

#[tokio::test]
async fn pages_share_a_left_edge_end_with_the_footer_and_cut_nothing_off() {
    let (service, ada) = Browser::with_service(Scripts::On).await;
    let email = "a.rather.long.address.of.ada.lovelace@lovelace-and-daughters.example";
    ada.sign_up(email).await;
    make_staff(&service, email).await;
    service.post("/v1/pets", &format!(r#"{{"name":"{}","categoryId":-9223372036854775808}}"#, "Rex".repeat(80))).await;
    service.create_pets(1).await;
    ada.submit("/keys/new", &[("name", "laptop")]).await;
    let key = ada.text("#key").await;
    for id in ["59bd7ab0-4b7c-4ad5-8b5d-0f7a3c0f6a37", &"a".repeat(128)] {
        let request = Request::new(service.store_address, "GET", "/v1/pets").key(&key).header("x-request-id", id);
        assert_eq!(request.header("prefer", "body=unknown-field").send().await.status(), 200);
    }
    for animal in ["1", "2"] {
        ada.submit("/orders", &[("petId", animal)]).await;
    }
    for width in [320, 360, 1280] {
        ada.set_width(width).await;
        ada.submit("/keys/new", &[("name", &"aNameWithoutAnySpace".repeat(4))]).await;
        assert_eq!(ada.evaluate(CUT_OFF).await, 0, "the page of a new key is wider than the screen");
        for path in PAGES {
            ada.open(path).await;
            assert_eq!(ada.evaluate(CUT_OFF).await, 0, "{path} is wider than the screen of {width} pixels");
            if width == 320 {
                continue; // The narrowest screen that must show all (WCAG 2.2, 1.4.10).
            }
            let seen = ada.evaluate(
                "const box = (selector) => document.querySelector(selector).getBoundingClientRect();
                const clipped = [...document.querySelectorAll('pre')].filter(one => one.scrollWidth > one.clientWidth);
                const end = Math.max(innerHeight, document.documentElement.scrollHeight);
                // A time beside a long name has one box, and one that is broken has a box on each line.
                const broken = [...document.querySelectorAll('tbody .whole')].filter(cell => {
                    const range = document.createRange();
                    range.selectNodeContents(cell);
                    return range.getClientRects().length !== 1;
                });
                return [box('h1').left - box('.site-name').left, Math.round(end - box('footer').bottom), clipped.length,
                        broken.length]",
            );
            assert_eq!(seen.await, serde_json::json!([0, 0, 0, 0]), "{path} at {width} pixels");
            if ["/orders", "/keys"].contains(&path) {
                assert!(ada.count("tbody .whole").await > 1, "{path} has times");
            }
        }
    }
    ada.close().await;
}

#[tokio::test]
async fn narrow_screen_breaks_no_name_within_a_word() {
    let (service, ada) = Browser::with_service(Scripts::On).await;
    ada.set_width(360).await;
    ada.sign_up(ADA).await;
    for name in ["Sir Barksalot the Third", "Bartholomew Montgomery", "Rex"] {
        let body = format!(r#"{{"name":"{name}","categoryId":-9223372036854775808}}"#);
        service.post("/v1/pets", &body).await;
    }
    ada.submit("/keys/new", &[("name", "nightly-import of Bartholomew Montgomery")]).await;
    for path in ["/animals", "/keys"] {
        ada.open(path).await;
        // A word that is broken has two boxes, one on each line.
        let broken = ada.evaluate(
            "const broken = [];
            for (const cell of document.querySelectorAll('tbody th, tbody .status')) {
                const text = [...cell.childNodes].find(node => node.nodeType === Node.TEXT_NODE);
                for (const word of text.data.matchAll(/[^\\s-]+/g)) {
                    const range = document.createRange();
                    range.setStart(text, word.index);
                    range.setEnd(text, word.index + word[0].length);
                    if (range.getClientRects().length !== 1) broken.push(word[0]);
                }
            }
            return broken",
        );
        assert_eq!(broken.await, serde_json::json!([]), "{path}");
    }
    ada.close().await;
}

#[tokio::test]
async fn form_with_a_password_waits_for_its_turn() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    let refuse_first = "const ask = fetch, busy = { status: 503, headers: { 'Retry-After': '1' } };
        window.fetch = async (...turn) => {
            const asked = sessionStorage.asked = Number(sessionStorage.asked ?? 0) + 1;
            const answer = asked === 1 ? new Response('', busy) : await ask(...turn);
            sessionStorage.statuses = (sessionStorage.statuses ?? '') + ' ' + answer.status;
            return answer;
        };";
    ada.run_on_each_page(refuse_first).await;
    ada.sign_up(ADA).await;
    assert_eq!(ada.evaluate("return sessionStorage.statuses").await, " 503 204");
    ada.close().await;
}

#[tokio::test]
async fn form_works_with_the_keyboard_alone() {
    let (_service, ada) = Browser::with_service(Scripts::On).await;
    ada.sign_up(ADA).await;
    ada.open("/keys/new").await;

    ada.press(TAB).await;
    assert_eq!(ada.evaluate("return document.activeElement.textContent").await, "Skip to content");
    ada.press(ENTER).await;
    ada.press(TAB).await;
    ada.press("laptop").await;
    let seen = ada.evaluate("return getComputedStyle(document.activeElement).outlineStyle").await;
    assert_eq!(seen, "solid", "the focus is visible");
    ada.press(ENTER).await;

    assert!(ada.text("#key").await.starts_with("pet_test_"));
    ada.close().await;
}
