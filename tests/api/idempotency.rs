//! `Idempotency-Key`: a retried request is executed once, and its response is replayed.

use std::time::Duration;

use petstore::api::parse_new_pet;
use petstore::domain::json::pet_json;
use petstore::domain::{IdempotencyKey, KeyedRequest, Pet, Role};
use petstore::store::postgres::{DatabaseUrl, Limits, Options, Postgres};
use petstore::store::{Store, StoredResponse, WriteKey};
use testkit::postgres::{self, OpenTransaction, query, sessions};
use testkit::{Request, TIMEOUT, until, within};

use crate::service::{HELLO, LARGEST, NOW, OPERATOR, REMOVAL, REX, Service, Setup};

const MIMI: &str = r#"{"name":"Mimi","categoryId":3}"#;
const DAY: Duration = Duration::from_hours(24);

fn create(service: &Service, key: &str) -> Request {
    service.request("POST", "/v1/pets").key(&service.key).header("idempotency-key", key)
}

fn send(service: &Service, key: &str) -> Request {
    service.message_request().key(&service.key).header("idempotency-key", key)
}

async fn animals(service: &Service) -> u64 {
    service.store.count_pets().await.unwrap()
}

#[test]
fn retry_replays_the_first_response() {
    Service::on_every_database(async |service| {
        let first = create(service, "a").json(REX).send().await;
        let again = create(service, "a").json(REX).send().await;

        assert_eq!((first.status(), first.is_replayed()), (201, false), "{}", first.shown());
        assert_eq!((again.status(), again.is_replayed()), (201, true), "{}", again.shown());
        assert_eq!(again.body, first.body);
        assert!(first.header("location").is_some_and(|location| location.ends_with("/v1/pets/1")));
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!(again.header("content-type"), Some("application/json"));
        let (_, key) = service.another_key(None).await;
        let by_another_key = service.request("POST", "/v1/pets").key(&key).header("idempotency-key", "a").json(REX);
        assert_eq!(by_another_key.send().await.body, first.body, "it belongs to the account");
        assert_eq!(animals(service).await, 1);

        let body = r#"{"message":"Hello\n🦊"}"#;
        let first = send(service, "a").json(body).send().await;
        service.clock.set(NOW.plus(Duration::from_secs(1)));
        let again = send(service, "a").json(body).send().await;
        assert_eq!((first.status(), first.is_replayed()), (202, false));
        assert_eq!((again.status(), again.is_replayed()), (202, true));
        assert_eq!((&again.body, again.header("location")), (&first.body, None));
        let messages = service.messages_of(service.account).await;
        assert_eq!(messages.len(), 1);
    });
}

#[test]
fn quoted_and_bare_keys_are_equal() {
    Service::on_every_database(async |service| {
        create(service, "\"8e03978e-40d5\"").json(REX).send().await;
        let again = create(service, "8e03978e-40d5").json(REX).send().await;
        assert_eq!((again.status(), again.is_replayed()), (201, true));
        for other in ["8e03978e-40D5", "\"8e03978e-40d5x\"", &"x".repeat(255)] {
            let answer = create(service, other).json(REX).send().await;
            assert_eq!((answer.status(), answer.is_replayed()), (201, false), "{other}");
        }
        assert_eq!(animals(service).await, 4);
    });
}

#[test]
fn key_expires_after_a_day() {
    Service::on_every_database(async |service| {
        let first = create(service, "a").json(REX).send().await;
        service.clock.set(NOW.plus(DAY).minus(Duration::from_millis(1)));
        let again = create(service, "a").json(REX).send().await;
        assert_eq!((&again.body, again.is_replayed()), (&first.body, true));

        service.clock.set(NOW.plus(DAY));
        let new = create(service, "a").json(MIMI).send().await;
        assert_eq!((new.status(), new.is_replayed()), (201, false), "{}", new.shown());
        assert_ne!(new.json()["id"], first.json()["id"]);
        assert_eq!(create(service, "a").json(REX).send().await.code(), "idempotency_key_reused");

        // The new record is kept for a day.
        service.clock.set(NOW.plus(DAY).plus(DAY).minus(Duration::from_millis(1)));
        let again = create(service, "a").json(MIMI).send().await;
        assert_eq!((again.body, animals(service).await), (new.body, 2));
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

#[test]
fn invalid_key_is_rejected_without_effect() {
    Service::on_every_database(async |service| {
        let long = "x".repeat(256);
        for value in ["", " ", "a b", "\"\"", "\"a", "\"a\"b", "\"a\\b\"", "\"a\";p=1", long.as_str()] {
            for request in [create(service, value).json(REX), send(service, value).json(HELLO)] {
                let answer = request.send().await;
                assert_eq!((answer.status(), answer.code().as_str()), (400, "invalid_value"), "{value}");
                let message = answer.json()["message"].as_str().unwrap().to_owned();
                assert!(
                    message.starts_with("`Idempotency-Key` must be 1 to 255 visible ASCII characters"),
                    "{message}"
                );
            }
        }
        let twice = create(service, "a").header("idempotency-key", "a").json(REX).send().await;
        assert_eq!((twice.status(), twice.code().as_str()), (400, "invalid_value"));
        assert!(twice.body.contains("`Idempotency-Key` is given more than once"), "{}", twice.body);
        assert_eq!(animals(service).await, 0);
    });
}

#[tokio::test]
async fn key_is_checked_with_syntax_and_values() {
    let service = Service::start().await;
    let unauthorised = service.request("POST", "/v1/pets").header("idempotency-key", "").json(REX);
    assert_eq!(unauthorised.send().await.code(), "missing_api_key");
    let too_large = create(&service, "").json(" ".repeat(LARGEST + 1));
    assert_eq!(too_large.send().await.code(), "payload_too_large");
    let wrong_type = create(&service, "").header("content-type", "text/plain").body(REX);
    assert_eq!(wrong_type.send().await.code(), "unsupported_media_type");
    assert_eq!(create(&service, "").json("{").send().await.status(), 400);
    // Reads ignore the header.
    let list = service.request("GET", "/v1/pets").key(&service.key).header("idempotency-key", "");
    assert_eq!(list.send().await.status(), 200);
}

#[tokio::test]
async fn only_executed_requests_are_stored() {
    let service = Service::start().await;
    for wrong in [
        create(&service, "a").json("{"),
        create(&service, "a").json(r#"{"name":"","categoryId":3}"#),
        create(&service, "a").header("content-type", "text/plain").body(REX),
        create(&service, "a").json(" ".repeat(LARGEST + 1)),
        service.request("POST", "/v1/pets").header("idempotency-key", "a").json(REX),
    ] {
        assert!(wrong.send().await.status() >= 400);
    }
    service.database().execute_batch("ALTER TABLE pets RENAME TO elsewhere").unwrap();
    assert_eq!(create(&service, "a").json(REX).send().await.code(), "internal_error");
    service.database().execute_batch("ALTER TABLE elsewhere RENAME TO pets").unwrap();

    let first = create(&service, "a").json(MIMI).send().await;
    assert_eq!((first.status(), first.is_replayed()), (201, false), "{}", first.shown());

    // A request whose response cannot be stored is rolled back.
    let broken = "ALTER TABLE idempotency_records RENAME COLUMN body TO elsewhere";
    service.database().execute_batch(broken).unwrap();
    assert_eq!(create(&service, "b").json(REX).send().await.code(), "internal_error");
    assert_eq!(service.post("/v1/pets", REX).await.status(), 201, "requests without a key do not use the table");
    assert_eq!(animals(&service).await, 2);
}

#[test]
fn order_steps_are_replayed_but_rejections_are_not() {
    Service::on_every_database(async |service| {
        service.post("/v1/pets", REX).await;
        let ask = async |path: &str, key: &str, body: &str| {
            let path = format!("/v1/store/orders{path}");
            let answer = service.request("POST", &path).key(&service.key).header("idempotency-key", key);
            let answer = answer.json(body).send().await;
            (answer.status(), answer.is_replayed(), answer.body)
        };
        let rex = r#"{"petId":1}"#;
        for _ in 0..2 {
            let (status, replayed, _) = ask("", "a", r#"{"petId":99}"#).await;
            assert_eq!((status, replayed), (404, false));
        }
        let (status, replayed, placed) = ask("", "a", rex).await;
        assert_eq!((status, replayed), (201, false), "a rejection does not use the key: {placed}");
        assert_eq!(ask("", "a", rex).await, (201, true, placed.clone()));
        let (status, replayed, _) = ask("", "b", rex).await;
        assert_eq!((status, replayed), (409, false));

        let (status, _, approved) = ask("/1/approve", "a", "").await;
        assert_eq!(status, 200, "the key is new to this operation: {approved}");
        assert_eq!(ask("/1/approve", "a", "").await, (200, true, approved));
        assert_eq!(ask("/1/approve", "b", "").await.0, 409);
        assert_eq!(ask("/2/approve", "a", "").await.0, 422, "another order is another request");
        assert_eq!(ask("/99/approve", "c", "").await.0, 404);
        let (status, _, cancelled) = ask("/1/cancel", "a", "").await;
        assert_eq!(status, 200, "{cancelled}");
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
        assert_eq!(service.order(&carol, 1).send().await.status(), 201);
        assert_eq!(service.order(&service.key, 2).send().await.status(), 201);
        let ask = async |key: &str, order, step| {
            let answer = service.step(key, order, step).header("idempotency-key", "a").send().await;
            (answer.status(), answer.is_replayed())
        };
        let steps = [(1, "approve"), (1, "cancel"), (2, "cancel")];
        for is_replayed in [false, true] {
            for (order, step) in steps {
                let key = if (order, step) == (2, "cancel") { "b" } else { "a" };
                let answer = service.step(&service.key, order, step).header("idempotency-key", key).send().await;
                assert_eq!((answer.status(), answer.is_replayed()), (200, is_replayed), "{order} {step}");
            }
        }
        assert_eq!(ask(&reading, 1, "cancel").await, (403, false), "a key that only reads");
        assert_eq!(ask(&carol, 1, "approve").await, (403, false), "the key belongs to another account");

        assert!(service.store.set_role(service.account, Role::Customer, OPERATOR).await.unwrap());
        until(async || ask(&service.key, 1, "approve").await == (403, false)).await;
        assert_eq!(ask(&service.key, 1, "cancel").await, (404, false), "the order of another account");
        let own = service.step(&service.key, 2, "cancel").header("idempotency-key", "b").send().await;
        assert_eq!((own.status(), own.is_replayed()), (200, true));

        assert!(service.store.set_role(service.account, Role::Staff, OPERATOR).await.unwrap());
        until(async || ask(&service.key, 1, "cancel").await == (200, true)).await;
    });
}

#[tokio::test]
async fn request_that_cannot_be_stored_is_rolled_back_on_postgresql() {
    let url = postgres::database();
    let service = Service::start_with(Setup { postgres: Some(url.clone()), ..Setup::default() }).await;
    query(&url, "ALTER TABLE idempotency_records ADD CHECK (status = 0)");
    assert_eq!(create(&service, "a").json(REX).send().await.code(), "internal_error");
    assert_eq!(send(&service, "a").json(HELLO).send().await.code(), "internal_error");
    assert_eq!(query(&url, "SELECT (SELECT count(*) FROM pets) + (SELECT count(*) FROM messages)"), "0");
    assert_eq!(service.post("/v1/pets", REX).await.status(), 201, "requests without a key do not use the table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn key_in_progress_in_another_process_is_409() {
    let url = postgres::database();
    let service = Service::start_with(Setup { postgres: Some(url.clone()), ..Setup::default() }).await;
    let mut patient = DatabaseUrl::parse(&url).unwrap();
    patient.limits = Limits(TIMEOUT);
    let other = Postgres::open(&Options::new(patient)).await.unwrap();
    let other = Store::Postgres(Box::new(other));
    // A third session blocks the first request.
    let holder = OpenTransaction::begin(&url, "LOCK TABLE pets");

    let key = IdempotencyKey::parse(b"a").unwrap();
    let request = KeyedRequest::new(service.account, "createPet", &key, "/v1/pets", REX, NOW);
    let key = WriteKey::new(request, |pet: &Pet<'_>| StoredResponse::json(201, pet_json(pet)));
    let first = tokio::spawn(async move { other.create_pet(parse_new_pet(REX).unwrap(), Some(key)).await.unwrap() });
    within(TIMEOUT, "waiting for the table", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    let busy = create(&service, "a").json(REX).send().await;
    assert_eq!((busy.status(), busy.code().as_str()), (409, "conflict"), "{}", busy.shown());
    assert_eq!(busy.header("retry-after"), Some("1"));
    holder.release();
    let first = first.await.unwrap().executed().unwrap();
    let again = create(&service, "a").json(REX).send().await;
    assert_eq!((again.status(), again.is_replayed()), (201, true));
    assert_eq!((again.body.into_bytes(), animals(&service).await), (pet_json(&first), 1));
}
