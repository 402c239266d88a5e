//! Simulated failures in the forms of a staging console.

use petstore::config::SimulationMode;
use petstore::domain::Deployment;
use testkit::ConsoleUser;
use testkit::console::{between, code};

use crate::service::{Service, Setup};
use crate::users::{ADA, signed_in};

const REX: [(&str, &str); 3] = [("name", "Rex"), ("categoryId", "3"), ("status", "available")];

type Fields = &'static [(&'static str, &'static str)];

/// The forms that offer simulation: page, action and fields.
const FORMS: [(&str, &str, Fields); 7] = [
    ("/animals/new", "/animals/new", &REX),
    ("/messages", "/messages", &[("message", "Hello, store!")]),
    ("/orders", "/orders", &[("petId", "1")]),
    ("/animals", "/animals/1/order", &[]),
    ("/orders", "/orders/1/approve", &[]),
    ("/orders", "/orders/1/deliver", &[]),
    ("/orders", "/orders/1/cancel", &[]),
];

#[tokio::test]
async fn forms_show_the_simulated_response() {
    let (service, mut ada) = signed_in().await;
    for (_, path, fields) in FORMS {
        for (preference, expected) in [
            ("code=503", "HTTP/1.1 503 Service Unavailable\n"),
            ("code=429", "HTTP/1.1 429 Too Many Requests\n"),
            ("code=500", "HTTP/1.1 500 Internal Server Error\n"),
            ("code=409", "HTTP/1.1 409 Conflict\n"),
            ("error=invalid_api_key", "HTTP/1.1 401 Unauthorized\n"),
            ("drop=request", "The connection was closed without a response."),
        ] {
            let page = ada.post(path, &[fields, &[("prefer", preference)]].concat()).await;
            assert_eq!(page.status(), 200, "the page itself did not fail: {}", page.body);
            let answer = code(&page.body, "answer");
            assert!(answer.starts_with(expected), "{path} {preference}: {answer}");
            let is_dropped = preference.starts_with("drop");
            assert_eq!(answer.contains(&format!("\npreference-applied: {preference}\n")), !is_dropped, "{answer}");
            assert!(code(&page.body, "request-curl").contains(&format!(" -H 'Prefer: {preference}'")));
            let said = between(&page.body, r#"<p class="warning" role="status">"#, "</p>");
            assert!(said.starts_with("This failure is simulated. "), "{path} {preference}: {said}");
        }
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 0);
    let dated = ada.post("/animals/new", &[&REX[..], &[("prefer", "date=2030-12-05")]].concat()).await;
    let answer = code(&dated.body, "answer");
    assert!(answer.starts_with("HTTP/1.1 201 Created\n") && !answer.contains("location"), "{answer}");
}

#[tokio::test]
async fn lost_response_is_settled_by_sending_the_form_again() {
    let (service, mut ada) = signed_in().await;
    for (lost, again, fields, words) in [
        ("/animals/new", "/animals/new", &REX[..], r#"value="Rex""#),
        ("/animals/1/order", "/orders", &[("petId", "1")], "Order"),
        ("/orders/1/approve", "/orders/1/approve", &[], "The list shows the status of order 1."),
    ] {
        let page = ada.post(lost, &[fields, &[("prefer", "drop=response")]].concat()).await.body;
        assert!(page.contains("The result is unknown.") && page.contains(words), "{page}");
        assert_eq!(page.contains("Send the form again: it counts only once."), !lost.ends_with("approve"), "{page}");

        let key = between(&page, "name=\"idempotencyKey\" value=\"", "\"");
        let page = ada.post(again, &[fields, &[("idempotencyKey", key)]].concat()).await.body;

        assert!(page.contains("This form was sent twice and counts once."), "{page}");
    }
    assert_eq!(service.sql("SELECT count(*), (SELECT count(*) FROM orders) FROM pets"), "1|1");
}

#[tokio::test]
async fn only_the_offered_failures_are_simulated() {
    let (service, mut ada) = signed_in().await;
    for other in ["", "code=400", "delay=30000", "code=503\r\nx: y", "drop"] {
        let added = ada.post("/animals/new", &[&REX[..], &[("prefer", other)]].concat()).await;
        assert_eq!(added.status(), 201, "{other}");
        assert!(!added.body.contains("preference-applied"), "{}", added.body);
        assert!(!code(&added.body, "request-curl").contains("Prefer"), "{}", added.body);
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 5);
}

#[tokio::test]
async fn lists_offer_simulation_once_for_their_buttons() {
    let (service, mut ada) = signed_in().await;
    service.create_pets(2).await;
    assert!(ada.get("/animals").await.body.contains("Applies to Order."));
    for path in ["/orders", "/orders/1/approve"] {
        let page = ada.post(path, &[("petId", "1")]).await.body;
        assert!(page.contains("Applies to Place order, Approve, Deliver and Cancel."), "{page}");
        assert_eq!(page.matches("Simulate a failure").count(), 1, "{page}");
    }
    assert!(!ada.get("/animals?status=pending").await.body.contains("Simulate a failure"));
    assert!(ada.get("/animals").await.body.contains("Applies to Order."), "the other animal is available");
}

#[tokio::test]
async fn production_offers_no_simulation() {
    let production = Setup { deployment: Deployment::Production, ..Setup::default() };
    let off = Setup { simulation: SimulationMode::Off, ..Setup::default() };
    for (setup, is_offered) in [(Setup::default(), true), (production, false), (off, false)] {
        let service = Service::start_with(setup).await;
        let mut ada = ConsoleUser::signed_in(&service, ADA).await;
        service.create_pets(2).await;
        assert_eq!(ada.post("/orders", &[("petId", "1")]).await.status(), 201);
        for (path, _, _) in FORMS {
            assert_eq!(ada.get(path).await.body.contains("Simulate a failure"), is_offered, "{path}");
        }
        let added = ada.post("/animals/new", &[&REX[..], &[("prefer", "code=503")]].concat()).await;
        assert_eq!(added.body.contains("503 Service Unavailable"), is_offered, "{}", added.body);
        assert_eq!(ada.get("/keys/new").await.body.contains("prefer"), is_offered);
        if service.store.deployment() == Deployment::Production {
            let key = [("name", "ci"), ("expiry", "never"), ("access", "write"), ("prefer", "code=503")];
            assert_eq!(ada.fill_in("/keys/new", &key).await.status(), 422);
        }
    }
}
