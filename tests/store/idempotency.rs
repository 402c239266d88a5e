//! Writes with an `Idempotency-Key`: the same on every database, to the letter.

use std::sync::Arc;
use std::time::Duration;

use petstore::domain::idempotency::KEPT_FOR;
use petstore::domain::{
    AccountId, Answer, Email, IdempotencyKey, KeyedRequest, Message, MessageText, NewPet, Outcome, Pet, PetName,
    PetStatus, Timestamp,
};
use petstore::store::postgres::{DatabaseUrl, Options, Postgres};
use petstore::store::{Result, Store};

use crate::backends::on_every_database;
use crate::postgres_server::{Server, query};

const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

#[tokio::test]
async fn an_animal_is_added_once_for_its_key_and_the_answer_is_kept_as_it_was() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let first = create(&store, ada, "a", "Rex", NOW).await.unwrap();
        assert_eq!(first, Outcome::First(created(1, "Rex")));
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(create(&store, ada, "a", "Rex", later).await.unwrap(), Outcome::Again(created(1, "Rex")));
        assert_eq!(create(&store, ada, "a", "Mimi", later).await.unwrap(), Outcome::Reused);
        assert_eq!(store.count_pets().await.unwrap(), 1);

        let grace = account(&store, "grace@example.com").await;
        let Outcome::First(_) = create(&store, grace, "a", "Mimi", NOW).await.unwrap() else { panic!("her key") };
        let Outcome::First(_) = create(&store, ada, "b", "Mimi", NOW).await.unwrap() else { panic!("another key") };
        assert_eq!(store.count_pets().await.unwrap(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_message_is_taken_on_once_for_its_key() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let answer = Answer { status: 202, location: None, body: vec![0, 0xff, b'"', b'\\', 0] };
        let send = async |text: &str, answer: &Answer| {
            let request = request(ada, "sendMessage", "a", text, NOW);
            let message = Message::new(ada, MessageText::parse(text.into()).unwrap(), NOW);
            store.create_message_once(request, message, answer.clone()).await.unwrap()
        };
        assert_eq!(send("Hello", &answer).await, Outcome::First(answer.clone()));
        let other = Answer { status: 500, ..answer.clone() };
        assert_eq!(send("Hello", &other).await, Outcome::Again(answer.clone()));
        assert_eq!(send("Bye", &other).await, Outcome::Reused);
        let (messages, _) = store.list_messages_of(ada, None, 10).await.unwrap();
        assert_eq!((messages.len(), messages[0].0.text.as_str()), (1, "Hello"));

        // The same key for another operation is another request.
        assert_eq!(create(&store, ada, "a", "Rex", NOW).await.unwrap(), Outcome::First(created(1, "Rex")));
    })
    .await;
}

#[tokio::test]
async fn a_record_that_has_expired_is_as_if_absent() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        create(&store, ada, "a", "Rex", NOW).await.unwrap();
        let expiry = NOW.plus(KEPT_FOR);
        let last = create(&store, ada, "a", "Rex", expiry.minus_one_millisecond()).await.unwrap();
        assert_eq!(last, Outcome::Again(created(1, "Rex")));
        let Outcome::First(new) = create(&store, ada, "a", "Mimi", expiry).await.unwrap() else { panic!("a new one") };
        assert_eq!(create(&store, ada, "a", "Mimi", expiry).await.unwrap(), Outcome::Again(new));
        assert_eq!(create(&store, ada, "a", "Rex", expiry).await.unwrap(), Outcome::Reused);
        assert_eq!(store.count_pets().await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn expired_records_are_deleted_step_by_step_oldest_first() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        for second in 0..5 {
            let now = NOW.plus(Duration::from_secs(second));
            create(&store, ada, &second.to_string(), "Rex", now).await.unwrap();
        }
        let expired = NOW.plus(KEPT_FOR).plus(Duration::from_secs(2));
        assert_eq!(store.delete_expired_answers(NOW, 100).await.unwrap(), 0);
        assert_eq!(store.delete_expired_answers(expired, 2).await.unwrap(), 2);
        assert_eq!(store.delete_expired_answers(expired, 2).await.unwrap(), 1);
        assert_eq!(store.delete_expired_answers(expired, 2).await.unwrap(), 0);
        // At a time when all of them would still hold, only those that were left do.
        for (second, left) in [(0, false), (1, false), (2, false), (3, true), (4, true)] {
            let outcome = create(&store, ada, &second.to_string(), "Rex", NOW).await.unwrap();
            assert_eq!(matches!(outcome, Outcome::Again(_)), left, "{second}: {outcome:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_at_once_have_one_effect_for_each_key() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let stores = [Arc::clone(&store), store];
        at_once(&stores, ada).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_at_once_in_several_processes_have_one_effect_for_each_key() {
    let url = Server::shared().database();
    let open = async || {
        let options = Options::new(DatabaseUrl::parse(&url).unwrap());
        Arc::new(Store::Postgres(Box::new(Postgres::open(&options).await.unwrap())))
    };
    let stores = [open().await, open().await, open().await];
    let ada = account(&stores[0], "ada@example.com").await;

    at_once(&stores, ada).await;

    let batches = query(&url, "SELECT count(DISTINCT xmin::text) FROM pets").parse::<u32>().unwrap();
    assert!(batches < 50, "{batches} transactions for 50 animals: there were no batches to speak of");
    let states = query(&url, "SELECT count(*) FROM idempotency_records WHERE status <> 201");
    assert_eq!(states, "0", "no record without its answer");
}

/// Asks with 50 keys, 10 times each, all of it at once.
async fn at_once(stores: &[Arc<Store>], account: AccountId) {
    let asked: Vec<_> = (0..500)
        .map(|n| {
            let store = Arc::clone(&stores[n % stores.len()]);
            tokio::spawn(async move {
                let key = (n % 50).to_string();
                // Under load a key may be in progress for longer than a request waits: it is asked again.
                loop {
                    match create(&store, account, &key, &key, NOW).await.unwrap() {
                        Outcome::InProgress => {}
                        outcome => return outcome,
                    }
                }
            })
        })
        .collect();
    let mut first = vec![0; 50];
    let mut answers = vec![None; 50];
    for (n, outcome) in asked.into_iter().enumerate() {
        let answer = match outcome.await.unwrap() {
            Outcome::First(answer) => {
                first[n % 50] += 1;
                answer
            }
            Outcome::Again(answer) => answer,
            other => panic!("{other:?}"),
        };
        assert_eq!(*answers[n % 50].get_or_insert(answer.clone()), answer);
    }
    assert_eq!(first, vec![1; 50]);
    assert_eq!(stores[0].count_pets().await.unwrap(), 50);
}

async fn create(store: &Store, account: AccountId, key: &str, name: &str, now: Timestamp) -> Result<Outcome> {
    let pet = NewPet { name: PetName::parse(name.into()).unwrap(), category_id: 1, status: PetStatus::Available };
    let answer = |pet: &Pet| created(pet.id, &pet.name);
    store.create_pet_once(request(account, "createPet", key, name, now), pet, Box::new(answer)).await
}

fn created(id: i64, name: &str) -> Answer {
    Answer { status: 201, location: Some(format!("/v1/pets/{id}")), body: format!("{id} is {name}").into() }
}

fn request(account: AccountId, operation: &str, key: &str, body: &str, now: Timestamp) -> KeyedRequest {
    KeyedRequest::new(account, operation, &IdempotencyKey::parse(key.as_bytes()).unwrap(), "/v1", body, now)
}

async fn account(store: &Store, address: &str) -> AccountId {
    store.create_account(Email::parse(address).unwrap(), None, NOW).await.unwrap().unwrap()
}
