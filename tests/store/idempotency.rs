//! Writes with idempotency keys. `tests/api/idempotency.rs` tells what clients see on each database.

use std::time::Duration;

use petstore::domain::idempotency::RETENTION;
use petstore::domain::{AccountId, IdempotencyKey, KeyedRequest, Pet, PetStatus, Timestamp};
use petstore::store::{Outcome, Store, StoredResponse, WriteKey};

use crate::fixtures::{NOW, account, new_pet, on_every_database};

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

async fn create(store: &Store, account: AccountId, key: &str, name: &str, now: Timestamp) -> Outcome<Pet<'static>> {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let key = WriteKey::new(KeyedRequest::new(account, "createPet", &key, "/v1/pets", name, now), created);
    store.create_pet(new_pet(name, PetStatus::Available), Some(key)).await.unwrap()
}

fn created(pet: &Pet<'_>) -> StoredResponse {
    let body = format!("{} is {}", pet.id, pet.name).into();
    StoredResponse { status: 201, location: Some(format!("/v1/pets/{}", pet.id)), body }
}
