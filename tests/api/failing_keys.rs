//! Failures of a part of the requests, strict preferences, and keys that carry preferences.

use std::time::Duration;

use petstore::api::Operation;
use petstore::domain::KeyId;
use petstore::domain::api_key::NewKey;

use crate::service::{LARGEST, NOW, REX, Service, make_key};
use crate::simulation::{applied, outcome, preferring};

/// Lists animals `requests` times. Returns which of the requests got 503.
pub async fn failures(service: &Service, key: &str, preferences: Option<&str>, requests: usize) -> Vec<bool> {
    let mut failed = Vec::new();
    for _ in 0..requests {
        let request = service.request("GET", "/v1/pets").key(key);
        let request = preferences.into_iter().fold(request, |request, it| request.header("prefer", it));
        let answer = request.send().await;
        assert_eq!(applied(&answer), if answer.status() == 503 { "code=503" } else { "" }, "{}", answer.shown());
        failed.push(answer.status() == 503);
    }
    failed
}

/// A key of the service's account with preferences.
pub async fn failing_key(service: &Service, prefer: &str) -> (KeyId, String) {
    make_key(&service.store, service.account, |key| NewKey { prefer: Some(prefer.to_owned()), ..key }).await
}

#[tokio::test]
async fn rate_fails_the_same_share_of_requests_in_each_run() {
    let first = Service::start().await;
    let second = Service::start().await;
    let preferences = Some("code=503, rate=0.3, seed=7");
    let failed = failures(&first, &first.key, preferences, 200).await;
    assert_eq!(failures(&second, &second.key, preferences, 200).await, failed, "a seed repeats a run");
    let failed: Vec<_> = (0..200).filter(|number| failed[*number]).collect();
    assert!((40..=80).contains(&failed.len()), "{} of 200", failed.len());
    // Computed with another implementation of splitmix64.
    assert_eq!(failed[..6], [1, 5, 8, 10, 21, 26], "a seed fails the same requests in each version");
    let other = failures(&second, &second.key, Some("code=503, rate=0.3"), 200).await;
    assert!(failed.iter().any(|number| !other[*number]), "the default seed is 0");
    assert_eq!(failures(&first, &first.key, Some("code=503, rate=0"), 20).await, [false; 20]);
    assert_eq!(failures(&first, &first.key, Some("code=503, rate=1"), 20).await, [true; 20]);
}

#[tokio::test]
async fn every_counts_the_requests_of_each_key() {
    let service = Service::start().await;
    let (_, another) = service.another_key(None).await;
    for key in [&service.key, &another] {
        let failed = failures(&service, key, Some("code=503, every=3, rate=x"), 7).await;
        assert_eq!(failed, [false, false, true, false, false, true, false]);
    }
}

#[tokio::test]
async fn operation_limits_and_counts_its_own_requests() {
    let service = Service::start().await;
    let preferences = "code=503, operation=createPet, every=2, handling=strict";
    use Operation::{CreatePet, ListPets};
    for (operation, status) in
        [(CreatePet, 201), (ListPets, 200), (ListPets, 200), (CreatePet, 503), (CreatePet, 201), (ListPets, 200)]
    {
        let request = preferring(&service, operation, preferences);
        let request = if operation == CreatePet { request.json(REX) } else { request };
        assert_eq!(request.send().await.status(), status, "{operation:?}");
    }
}

#[tokio::test]
async fn strict_handling_rejects_what_is_otherwise_ignored() {
    let service = Service::with_pets(1).await;
    for (preferences, message) in [
        ("respond-async", "has the unknown preference respond-async"),
        ("code=abc", "has an invalid code: it must be an HTTP status"),
        ("code=401;rate=0.1", "has parameters after code: separate preferences by commas"),
        ("code=\"401\" ; a", "has parameters after code: separate preferences by commas"),
        ("delay=0", "has an invalid delay: it must be 1 to 30000 (milliseconds)"),
        ("drop=everything", "has an invalid drop: it must be request, response, body or reset"),
        ("pace=10001", "has an invalid pace: it must be 1 to 10000 (bytes per second)"),
        ("body=xml", "has an invalid body: it must be cut, html, unknown-field or unknown-value"),
        ("retry-after=3601", "has an invalid retry-after: it must be 0 to 3600 (seconds), or date"),
        ("retry-after=30", "has retry-after without an error such as code=503"),
        ("date=2026-11-19", "has a date that has passed"),
        ("date=20301205", "has an invalid date: it must be a date such as 2030-12-05, today or later"),
        ("rate=1.1", "has an invalid rate: it must be 0 to 1, such as 0.1"),
        ("seed=-1", "has an invalid seed: it must be an integer from 0"),
        ("rate=x, every=0", "has an invalid rate: it must be 0 to 1, such as 0.1"),
        ("every=0", "has an invalid every: it must be an integer from 1"),
        ("first=0", "has an invalid first: it must be an integer from 1"),
        ("code=503, rate=0.5, every=2", "has both rate and every"),
        ("code=503, first=2, rate=0.5", "has both rate and first"),
        ("code=503, first=2, every=2, delay=1", "has both every and first"),
        ("code=503, body=cut", "has both an error and body, which breaks a success"),
        ("first=2", "has no effect: add a failure such as code=503"),
        ("operation=addPet", "has an invalid operation: it must be an operation of the API, such as createPet"),
        ("rate=0.5", "has no effect: add a failure such as code=503"),
        ("every=2", "has no effect: add a failure such as code=503"),
        ("operation=listPets", "has no effect: add a failure such as code=503"),
        ("seed=7", "has no effect: add a failure such as code=503"),
        ("code=503, every=2, seed=7", "has a seed without a rate"),
        ("code=409", "has code=409, which is no documented error of listPets"),
        ("error=conflict", "has error=conflict, which is no documented error of listPets"),
        ("code=400, retry-after=1", "has retry-after=1, which is no header of this error of listPets"),
    ] {
        let strictly = format!("{preferences}, handling=strict");
        let strict = preferring(&service, Operation::ListPets, &strictly).send().await;
        assert_eq!((strict.status(), strict.code().as_str(), applied(&strict)), (400, "invalid_value", ""));
        assert_eq!(strict.json()["message"], format!("`Prefer` {message}."));
        if !preferences.starts_with("code=503") && !preferences.starts_with("code=400") {
            let lenient = preferring(&service, Operation::ListPets, preferences).send().await;
            assert_eq!(outcome(&lenient), (200, ""), "{preferences}");
        }
    }
    let accepted = preferring(&service, Operation::GetPet, "handling=strict, code=410, delay=1, date=2030-12-05");
    assert_eq!(applied(&accepted.send().await), "code=410, delay=1, date=2030-12-05");
    // The first one counts, even if it is malformed (RFC 7240, section 2).
    let lenient = preferring(&service, Operation::ListPets, "handling=foo, handling=strict, respond-async");
    assert_eq!(lenient.send().await.status(), 200);
    let for_another = preferring(&service, Operation::ListPets, "handling=strict, operation=placeOrder, code=409");
    assert_eq!(for_another.send().await.status(), 200);
    let large = preferring(&service, Operation::CreatePet, "handling=strict, x").json("x".repeat(LARGEST + 1));
    assert_eq!(large.send().await.status(), 413, "the size of the body comes first");
    let mut bytes =
        preferring(&service, Operation::ListPets, "handling=strict, ?").header("connection", "close").bytes();
    let mark = bytes.windows(3).position(|three| three == b", ?").unwrap() + 2;
    bytes[mark] = 0xfe;
    assert!(testkit::raw(service.store_address, &bytes).await.starts_with("HTTP/1.1 400"), "a byte that is not ASCII");
    let without_key = service.request("GET", "/v1/pets").header("prefer", "handling=strict, x").send().await;
    assert_eq!(without_key.code(), "missing_api_key", "the key comes first");
}

#[tokio::test]
async fn responses_to_head_have_no_body_to_cut() {
    let service = Service::start().await;
    for preference in ["drop=body", "pace=1", "body=cut"] {
        let head = |prefer: &str| service.request("HEAD", "/v1/pets").key(&service.key).header("prefer", prefer);
        let ignored = head(&format!("{preference}, delay=1")).send().await;
        assert_eq!(outcome(&ignored), (200, "delay=1"), "{preference}");
        assert_eq!(head(&format!("{preference}, handling=strict")).send().await.status(), 400, "{preference}");
    }
}

#[tokio::test]
async fn strict_handling_applies_to_the_document() {
    let service = Service::start().await;
    let get = async |prefer: &str| service.request("GET", "/openapi.json").header("prefer", prefer).send().await;
    for (preferences, message) in [
        ("wait=5", "has the unknown preference wait"),
        ("date=2026-11-19", "has a date that has passed"),
        ("date=2030-12-05, code=503", "has code=503, which does not apply to the OpenAPI document"),
        ("date=2030-12-05, rate=0.5", "has rate=0.5, which does not apply to the OpenAPI document"),
    ] {
        let rejected = get(&format!("{preferences}, handling=strict")).await;
        assert_eq!((rejected.status(), rejected.code().as_str()), (400, "invalid_value"), "{}", rejected.shown());
        assert_eq!(rejected.json()["message"], format!("`Prefer` {message}."));
    }
    let dated = get("date=2030-12-05, handling=strict").await;
    assert_eq!(outcome(&dated), (200, "date=2030-12-05"));
    let for_an_operation = get("date=2030-12-05, operation=getPet, handling=strict").await;
    assert_eq!(outcome(&for_an_operation), (200, ""));
    assert!(for_an_operation.body.contains("getPet"));
}

#[tokio::test]
async fn thousands_of_preferences_are_ignored() {
    let service = Service::start().await;
    let names: String = (0..5_000).map(|n| format!("p{n},")).collect();
    let answer = service.request("GET", "/openapi.json").header("prefer", &names).send().await;
    assert_eq!(outcome(&answer), (200, ""));
}

#[test]
fn key_with_preferences_fails_without_a_header() {
    Service::on_every_database(async |service| {
        let (_, key) = failing_key(service, "code=503, every=3").await;
        assert_eq!(failures(service, &key, None, 4).await, [false, false, true, false]);
        assert_eq!(failures(service, &service.key, None, 2).await, [false, false], "other keys work");

        let own = service.request("GET", "/v1/pets").key(&key).header("prefer", "code=429").send().await;
        assert_eq!(applied(&own), "code=429", "a header replaces the preferences of the key");
        let none = service.request("GET", "/v1/pets").key(&key).header("prefer", "handling=lenient");
        assert_eq!(none.send().await.status(), 200);
        assert_eq!(failures(service, &key, None, 2).await, [false, true], "a replaced preference counts nothing");
        assert_eq!(failures(service, &key, Some("code=503, every=3"), 2).await, [false; 2]);
        assert_eq!(failures(service, &key, None, 1).await, [true], "a key has one counter");
    });
}

#[tokio::test]
async fn date_of_a_key_is_ignored_once_it_has_passed() {
    let service = Service::with_pets(1).await;
    let (_, key) = failing_key(&service, "date=2026-11-21, handling=strict").await;
    let get = async || service.request("GET", "/v1/pets/1").key(&key).send().await;
    assert_eq!(applied(&get().await), "date=2026-11-21");
    service.clock.set(NOW.plus(Duration::from_hours(48)));
    let later = get().await;
    assert_eq!(outcome(&later), (200, ""));
}
