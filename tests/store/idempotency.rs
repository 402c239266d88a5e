//! Writes with idempotency keys on every database.

use std::sync::Arc;
use std::time::Duration;

use petstore::domain::idempotency::RETENTION;
use petstore::domain::order::{PlaceOrderError, TransitionError};
use petstore::domain::{
    AccountId, Email, IdempotencyKey, KeyedRequest, Message, MessageText, NewOrder, NewPet, Order, OrderStatus,
    OrderTransition, Pet, PetName, PetStatus, Timestamp, Transition,
};
use petstore::store::postgres::{DatabaseUrl, Options, Postgres};
use petstore::store::{Outcome, Store, StoredResponse, WriteKey};
use testkit::PostgresServer;
use testkit::postgres::query;

use crate::backends::on_every_database;

const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

#[tokio::test]
async fn animal_is_created_once_per_key_and_its_response_replayed() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        assert_eq!(create(&store, ada, "a", "Rex", NOW).await, Outcome::Executed(pet(1, "Rex")));
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(create(&store, ada, "a", "Rex", later).await, Outcome::Replayed(created(&pet(1, "Rex"))));
        assert_eq!(create(&store, ada, "a", "Mimi", later).await, Outcome::KeyMismatch);
        assert_eq!(store.count_pets().await.unwrap(), 1);

        let grace = account(&store, "grace@example.com").await;
        let of_another_account = create(&store, grace, "a", "Mimi", NOW).await;
        assert_eq!(of_another_account, Outcome::Executed(pet(2, "Mimi")));
        let with_another_key = create(&store, ada, "b", "Mimi", NOW).await;
        assert_eq!(with_another_key, Outcome::Executed(pet(3, "Mimi")));
        assert_eq!(store.count_pets().await.unwrap(), 3);
    })
    .await;
}

#[tokio::test]
async fn message_is_queued_once_per_key() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let stored = StoredResponse { status: 202, location: None, body: vec![0, 0xff, b'"', b'\\', 0] };
        let other = StoredResponse { status: 500, ..stored.clone() };
        let send = async |text: &str, response: &StoredResponse| {
            let message = Message::new(ada, MessageText::parse(text.into()).unwrap(), NOW);
            let response = response.clone();
            let key = WriteKey::new(request(ada, "sendMessage", "a", text, NOW), move |_: &Message| response.clone());
            store.create_message(message, Some(key)).await.unwrap()
        };
        let sent = send("Hello", &stored).await.executed().unwrap();
        assert_eq!(send("Hello", &other).await, Outcome::Replayed(stored));
        assert_eq!(send("Bye", &other).await, Outcome::KeyMismatch);
        let (messages, _) = store.list_messages_of(ada, None, 10).await.unwrap();
        assert_eq!(messages, [(sent, None)]);

        // Operations do not share keys.
        assert_eq!(create(&store, ada, "a", "Rex", NOW).await, Outcome::Executed(pet(1, "Rex")));
    })
    .await;
}

#[tokio::test]
async fn refused_write_does_not_use_its_key() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let place = async |pet_id| {
            let order = NewOrder { account: ada, pet_id, now: NOW };
            let key = WriteKey::new(request(ada, "placeOrder", "a", "", NOW), |order: &Order| {
                StoredResponse::json(201, order.id.to_string().into())
            });
            store.place_order(order, Some(key)).await.unwrap()
        };
        assert_eq!(place(1).await, Outcome::Refused(PlaceOrderError::PetNotFound));
        create(&store, ada, "a", "Rex", NOW).await;
        assert_eq!(place(1).await.executed().unwrap().id, 1);
        assert_eq!(place(1).await, Outcome::Replayed(StoredResponse::json(201, b"1".to_vec())));

        let change = async |transition, key| {
            let change = OrderTransition { account: ada, order: 1, transition, now: NOW };
            let key = WriteKey::new(request(ada, "change", key, "", NOW), |order: &Order| {
                StoredResponse::json(200, order.status.as_str().into())
            });
            store.transition_order(change, Some(key)).await.unwrap()
        };
        let wrong = TransitionError::WrongStatus { transition: Transition::Deliver, status: OrderStatus::Placed };
        assert_eq!(change(Transition::Deliver, "a").await, Outcome::Refused(wrong));
        assert!(change(Transition::Approve, "b").await.executed().is_some());
        assert!(change(Transition::Deliver, "a").await.executed().is_some());
        let replayed = Outcome::Replayed(StoredResponse::json(200, b"delivered".to_vec()));
        assert_eq!(change(Transition::Deliver, "a").await, replayed);
    })
    .await;
}

#[tokio::test]
async fn expired_record_does_not_count() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        create(&store, ada, "a", "Rex", NOW).await;
        let expiry = NOW.plus(RETENTION);
        let last = create(&store, ada, "a", "Rex", expiry.minus_one_millisecond()).await;
        assert_eq!(last, Outcome::Replayed(created(&pet(1, "Rex"))));
        let new = create(&store, ada, "a", "Mimi", expiry).await.executed().unwrap();
        assert_eq!(new, pet(2, "Mimi"));
        assert_eq!(create(&store, ada, "a", "Mimi", expiry).await, Outcome::Replayed(created(&new)));
        assert_eq!(create(&store, ada, "a", "Rex", expiry).await, Outcome::KeyMismatch);
        assert_eq!(store.count_pets().await.unwrap(), 2);
    })
    .await;
}

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
async fn concurrent_requests_are_executed_once_per_key() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let stores = [Arc::clone(&store), store];
        send_concurrently(&stores, ada).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_of_several_processes_are_executed_once_per_key() {
    let url = PostgresServer::shared().database();
    let open = async || {
        let options = Options::new(DatabaseUrl::parse(&url).unwrap());
        Arc::new(Store::Postgres(Box::new(Postgres::open(&options).await.unwrap())))
    };
    let stores = [open().await, open().await, open().await];
    let ada = account(&stores[0], "ada@example.com").await;

    send_concurrently(&stores, ada).await;

    let batches = query(&url, "SELECT count(DISTINCT xmin::text) FROM pets").parse::<u32>().unwrap();
    assert!(batches < 50, "{batches} transactions for 50 animals");
    let states = query(&url, "SELECT count(*) FROM idempotency_records WHERE status <> 201");
    assert_eq!(states, "0", "every record has its response");
}

/// Sends 10 requests for each of 50 keys concurrently.
async fn send_concurrently(stores: &[Arc<Store>], account: AccountId) {
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
}

async fn create(store: &Store, account: AccountId, key: &str, name: &str, now: Timestamp) -> Outcome<Pet> {
    let pet = NewPet { name: PetName::parse(name.into()).unwrap(), category_id: 1, status: PetStatus::Available };
    let key = WriteKey::new(request(account, "createPet", key, name, now), created);
    store.create_pet(pet, Some(key)).await.unwrap()
}

fn pet(id: i64, name: &str) -> Pet {
    Pet { id, name: name.into(), category_id: 1, status: PetStatus::Available }
}

fn created(pet: &Pet) -> StoredResponse {
    let body = format!("{} is {}", pet.id, pet.name).into();
    StoredResponse { status: 201, location: Some(format!("/v1/pets/{}", pet.id)), body }
}

fn request(account: AccountId, operation: &str, key: &str, body: &str, now: Timestamp) -> KeyedRequest {
    KeyedRequest::new(account, operation, &IdempotencyKey::parse(key.as_bytes()).unwrap(), "/v1", body, now)
}

async fn account(store: &Store, address: &str) -> AccountId {
    store.create_account(Email::parse(address).unwrap(), None, NOW).await.unwrap().unwrap()
}
