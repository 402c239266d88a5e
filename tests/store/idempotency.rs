//! Writes with idempotency keys. `tests/api/idempotency.rs` tells what clients see on each database.

use std::sync::Arc;
use std::time::Duration;

use petstore::domain::idempotency::RETENTION;
use petstore::domain::{AccountId, IdempotencyKey, KeyedRequest, Pet, PetStatus, Timestamp};
use petstore::store::{Outcome, Store, StoredResponse, WriteKey};
use testkit::postgres::{self, query};

use crate::fixtures::{NOW, account, new_pet, on_every_database, open_postgresql};

#[tokio::test]
async fn expired_records_are_deleted_oldest_first() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        for second in 0..5 {
            let now = NOW.plus(Duration::from_secs(second));
            create(&store, ada, &second.to_string(), "Rex", now).await;
        }
        let expired = NOW.plus(RETENTION).plus(Duration::from_secs(2));
        assert_eq!(store.delete_expired_responses(NOW, 100).await.unwrap(), 0);
        assert_eq!(store.delete_expired_responses(expired, 2).await.unwrap(), 2);
        assert_eq!(store.delete_expired_responses(expired, 2).await.unwrap(), 1);
        assert_eq!(store.delete_expired_responses(expired, 2).await.unwrap(), 0);
        // At a time before all expiries, only the remaining records are found.
        for (second, left) in [(0, false), (1, false), (2, false), (3, true), (4, true)] {
            let outcome = create(&store, ada, &second.to_string(), "Rex", NOW).await;
            assert_eq!(matches!(outcome, Outcome::Replayed(_)), left, "{second}: {outcome:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_processes_execute_a_request_once_per_key() {
    let url = postgres::database();
    let stores = [open_postgresql(&url).await, open_postgresql(&url).await, open_postgresql(&url).await];

    // 10 requests for each of 50 keys.
    let account = account(&stores[0], "ada@example.com").await;
    let requests: Vec<_> = (0..500)
        .map(|n| {
            let store = Arc::clone(&stores[n % stores.len()]);
            tokio::spawn(async move {
                let key = (n % 50).to_string();
                // Under load, a key may be in progress for longer than a request waits.
                loop {
                    match create(&store, account, &key, &key, NOW).await {
                        Outcome::InProgress => {}
                        outcome => return outcome,
                    }
                }
            })
        })
        .collect();
    let mut executed = vec![0; 50];
    let mut responses = vec![None; 50];
    for (n, outcome) in requests.into_iter().enumerate() {
        let response = match outcome.await.unwrap() {
            Outcome::Executed(pet) => {
                executed[n % 50] += 1;
                created(&pet)
            }
            Outcome::Replayed(response) => response,
            other => panic!("{other:?}"),
        };
        assert_eq!(*responses[n % 50].get_or_insert(response.clone()), response);
    }
    assert_eq!(executed, vec![1; 50]);
    assert_eq!(stores[0].count_pets().await.unwrap(), 50);

    let batches = query(&url, "SELECT count(DISTINCT xmin::text) FROM pets").parse::<u32>().unwrap();
    assert!(batches < 50, "{batches} transactions for 50 animals");
    let states = query(&url, "SELECT count(*) FROM idempotency_records WHERE status <> 201");
    assert_eq!(states, "0", "every record has its response");
}

async fn create(store: &Store, account: AccountId, key: &str, name: &str, now: Timestamp) -> Outcome<Pet<'static>> {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let key = WriteKey::new(KeyedRequest::new(account, "createPet", &key, "/v1/pets", name, now), created);
    store.create_pet(new_pet(name, PetStatus::Available), Some(key)).await.unwrap()
}

fn created(pet: &Pet<'_>) -> StoredResponse {
    let body = format!("{} is {}", pet.id, pet.name).into();
    StoredResponse { status: 201, location: Some(format!("/v1/pets/{}", pet.id)), body }
}
