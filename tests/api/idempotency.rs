//! `Idempotency-Key`: a retried request is executed once, and its response is replayed.

use std::time::Duration;

use petstore::domain::Role;
use testkit::postgres::{OpenTransaction, sessions};
use testkit::{Request, Response, TIMEOUT, new_pet, until, within};

use crate::service::{HELLO, LARGEST, NOW, OPERATOR, REMOVAL, REX, Service};

const MIMI: &str = r#"{"name":"Mimi","categoryId":3}"#;
const DAY: Duration = Duration::from_hours(24);

fn create(service: &Service, key: &str) -> Request {
    service.call("POST", "/v1/pets").header("idempotency-key", key)
}

fn send(service: &Service, key: &str) -> Request {
    service.message_request().key(&service.key).header("idempotency-key", key)
}

fn outcome(answer: &Response) -> (u16, bool) {
    (answer.status(), answer.is_replayed())
}

async fn animals(service: &Service) -> u64 {
    service.store.count_pets().await.unwrap()
}

#[test]
fn retry_replays_the_first_response() {
    Service::on_every_database(async |service| {
        let first = create(service, "a").json(REX).send().await;
        assert_eq!(outcome(&first), (201, false), "{}", first.shown());
        let (_, another) = service.another_key(None).await;
        for again in [
            create(service, "a"),
            create(service, "\"a\""),
            service.request("POST", "/v1/pets").key(&another).header("idempotency-key", "a"),
        ] {
            let again = again.json(REX).send().await;
            assert_eq!((outcome(&again), &again.body), ((201, true), &first.body));
            let location = format!("http://{}/v1/pets/1", service.store_address);
            assert_eq!([&first, &again].map(|answer| answer.header("location")), [Some(&*location); 2]);
            assert_eq!(again.header("content-type"), Some("application/json"));
        }
        assert_eq!(outcome(&create(service, "A").json(REX).send().await), (201, false));
        assert_eq!(animals(service).await, 2);

        let body = r#"{"message":"Hello\n🦊"}"#;
        let first = send(service, "a").json(body).send().await;
        service.clock.set(NOW.plus(DAY).minus(Duration::from_millis(1)));
        let again = send(service, "a").json(body).send().await;
        assert_eq!((outcome(&first), outcome(&again)), ((202, false), (202, true)));
        assert_eq!((&again.body, again.header("location")), (&first.body, None));
        service.clock.set(NOW.plus(DAY));
        assert_eq!(outcome(&send(service, "a").json(body).send().await), (202, false));
        assert_eq!(service.messages_of(service.account).await.len(), 2);
    });
}

#[tokio::test]
async fn replayed_response_ignores_later_changes() {
    let service = Service::start().await;
    service.clock.set(REMOVAL.minus(Duration::from_millis(1)));
    let first = create(&service, "a").json(REX).send().await;
    service.clock.set(REMOVAL);
    let again = create(&service, "a").json(REX).send().await;
    assert!(first.header("location").is_some());
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(create(&service, "b").json(REX).send().await.header("location"), None);
}

#[tokio::test]
async fn invalid_key_is_rejected_with_syntax_and_values() {
    let service = Service::start().await;
    for (message, request) in [
        ("must be 1 to 255 visible ASCII characters, bare or as a quoted string.", create(&service, "")),
        ("must be 1 to 255 visible ASCII characters, bare or as a quoted string.", create(&service, &"x".repeat(256))),
        ("is given more than once.", create(&service, "a").header("idempotency-key", "a")),
    ] {
        let answer = request.json(REX).send().await;
        assert_eq!(
            (answer.code(), &answer.json()["message"]),
            ("invalid_value".into(), &format!("`Idempotency-Key` {message}").into())
        );
    }
    assert_eq!(send(&service, "").json(HELLO).send().await.code(), "invalid_value");
    for (code, request) in [
        ("missing_api_key", service.request("POST", "/v1/pets").header("idempotency-key", "").json(REX)),
        ("payload_too_large", create(&service, "").json(" ".repeat(LARGEST + 1))),
        ("unsupported_media_type", create(&service, "").header("content-type", "text/plain").body(REX)),
    ] {
        assert_eq!(request.send().await.code(), code);
    }
    // Reads ignore the header.
    let list = service.call("GET", "/v1/pets").header("idempotency-key", "");
    assert_eq!(list.send().await.body, "[]");
}

#[test]
fn only_executed_requests_are_stored() {
    Service::on_every_database(async |service| {
        for wrong in [
            create(service, "a").json("{"),
            create(service, "a").json(r#"{"name":"","categoryId":3}"#),
            create(service, "a").header("content-type", "text/plain").body(REX),
            create(service, "a").json(" ".repeat(LARGEST + 1)),
        ] {
            assert!(wrong.send().await.status() >= 400);
        }
        service.sql("ALTER TABLE pets RENAME TO elsewhere");
        assert_eq!(create(service, "a").json(REX).send().await.code(), "internal_error");
        service.sql("ALTER TABLE elsewhere RENAME TO pets");

        let first = create(service, "a").json(MIMI).send().await;
        assert_eq!(outcome(&first), (201, false), "{}", first.shown());

        // A request whose response cannot be stored is rolled back.
        service.sql("ALTER TABLE idempotency_records RENAME COLUMN body TO elsewhere");
        assert_eq!(create(service, "b").json(REX).send().await.code(), "internal_error");
        assert_eq!(send(service, "b").json(HELLO).send().await.code(), "internal_error");
        assert_eq!(service.messages_of(service.account).await.len(), 0);
        assert_eq!(service.post("/v1/pets", REX).await.status(), 201, "requests without a key do not use the table");
        assert_eq!(animals(service).await, 2);
    });
}

#[test]
fn order_steps_are_replayed_but_rejections_are_not() {
    Service::with_pets_on_every_database(1, async |service| {
        let ask = async |path: &str, key: &str, body: &str| {
            let request = service.call("POST", &format!("/v1/store/orders{path}")).header("idempotency-key", key);
            let answer = request.json(body).send().await;
            (answer.status(), answer.is_replayed(), answer.body)
        };
        let rex = r#"{"petId":1}"#;
        for _ in 0..2 {
            assert_eq!(ask("", "a", r#"{"petId":99}"#).await.0, 404);
        }
        let (status, _, placed) = ask("", "a", rex).await;
        assert_eq!(status, 201, "a rejection does not use the key: {placed}");
        assert_eq!(ask("", "a", rex).await, (201, true, placed.clone()));
        assert_eq!(ask("", "b", rex).await.0, 409);

        let (status, _, approved) = ask("/1/approve", "a", "").await;
        assert_eq!(status, 200, "the key is new to this operation: {approved}");
        assert_eq!(ask("/1/approve", "a", "").await, (200, true, approved));
        assert_eq!(ask("/1/approve", "b", "").await.0, 409);
        assert_eq!(ask("/2/approve", "a", "").await.0, 422, "another order is another request");
        assert_eq!(ask("/99/approve", "c", "").await.0, 404);
        let (_, _, cancelled) = ask("/1/cancel", "a", "").await;
        assert_eq!(ask("/1/cancel", "a", "").await, (200, true, cancelled));
        assert_eq!(ask("/1/cancel", "b", "").await.0, 409);

        let (status, replayed, _) = ask("", "b", rex).await;
        assert_eq!((status, replayed), (201, false), "the animal is available again, and the 409 was not stored");
        assert_eq!(ask("", "a", rex).await, (201, true, placed), "the response is that of the time of the request");
    });
}

#[test]
fn replay_needs_the_permission_of_now() {
    Service::with_pets_on_every_database(2, async |service| {
        let (_, carol) = service.another_account("carol@example.com").await;
        let (_, reading) = service.reading_key(service.account).await;
        let staff = &*service.key;
        assert_eq!(service.order(&carol, 1).send().await.status(), 201);
        assert_eq!(service.order(staff, 2).send().await.status(), 201);
        let ask = async |key: &str, order, step| {
            outcome(&service.step(key, order, step).header("idempotency-key", &order.to_string()).send().await)
        };
        for is_replayed in [false, true] {
            for (order, step) in [(1, "approve"), (1, "cancel"), (2, "cancel")] {
                assert_eq!(ask(staff, order, step).await, (200, is_replayed), "{order} {step}");
            }
        }
        assert_eq!(ask(&reading, 1, "cancel").await, (403, false), "a key that only reads");
        assert_eq!(ask(&carol, 1, "approve").await, (403, false), "the key belongs to another account");

        assert!(service.store.set_role(service.account, Role::Customer, OPERATOR).await.unwrap());
        until(async || ask(staff, 1, "approve").await == (403, false)).await;
        assert_eq!(ask(staff, 1, "cancel").await, (404, false), "the order of another account");
        assert_eq!(ask(staff, 2, "cancel").await, (200, true), "an order of its own");

        assert!(service.store.set_role(service.account, Role::Staff, OPERATOR).await.unwrap());
        until(async || ask(staff, 1, "cancel").await == (200, true)).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_in_progress_in_another_process_is_409() {
    let url = testkit::postgres::database();
    let service = Service::start_at(&url).await;
    let other = service.database.serve();
    // A third session blocks the first request.
    let holder = OpenTransaction::begin(&url, "LOCK TABLE pets");
    let first = other.pet_request(&service.key, "Rex").header("idempotency-key", "a");
    let first = tokio::spawn(first.send());
    within(TIMEOUT, "waiting for the table", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    let busy = create(&service, "a").json(new_pet("Rex")).send().await;
    assert_eq!((busy.code().as_str(), busy.header("retry-after")), ("conflict", Some("1")), "{}", busy.shown());
    holder.release();
    let first = first.await.unwrap();
    let again = create(&service, "a").json(new_pet("Rex")).send().await;
    assert_eq!((outcome(&first), outcome(&again)), ((201, false), (201, true)));
    assert_eq!((again.body, animals(&service).await), (first.body, 1));
}
