//! Resets. `tests/cli/reset.rs` tells what clients of a running service see.

use std::collections::BTreeSet;
use std::time::Duration;

use petstore::domain::order::PlaceOrderError;
use petstore::domain::{
    AccountId, Deployment, IdempotencyKey, KeyedRequest, NewOrder, Order, Pet, PetQuery, PetStatus,
};
use petstore::store::postgres::Options;
use petstore::store::{Contents, Outcome, Store, StoreError, StoredResponse, WriteKey, sqlite};
use testkit::postgres::{self, OpenTransaction, query, sessions, try_query};
use testkit::{TIMEOUT, within};
use tokio::task::JoinHandle;

use crate::fixtures::{
    NOW, OPERATOR, account, animals, create_pet, key, message, new_pet, on_every_database, open_postgresql,
    open_sqlite, open_with, options, spawn,
};

const EMPTY: Contents = Contents { animals: 0, orders: 0, messages: 0, responses: 0 };

#[test]
fn reset_replaces_animals_and_deletes_what_belongs_to_them() {
    on_every_database(async |store| {
        let ada = fill(&store).await;
        let (_, key) = key(&store, ada, None).await;
        let full = Contents { animals: 3, orders: 1, messages: 1, responses: 1 };
        assert_eq!((store.before_reset().await.unwrap(), store.resets().await.unwrap()), (full, 0));

        assert_eq!(store.reset(animals(2), OPERATOR, || false).await.unwrap(), 2);

        assert_eq!(store.before_reset().await.unwrap(), Contents { animals: 2, ..EMPTY });
        assert_eq!(store.resets().await.unwrap(), 1);
        assert_eq!(store.take_retries().await.unwrap().as_deref(), Some("all"), "the relay ends its pauses");
        let kept = store.find_pet(1).await.unwrap().unwrap();
        assert_eq!((&*kept.name, kept.status), ("new 0", PetStatus::Sold));
        assert_eq!(store.find_pet(3).await.unwrap(), None);
        assert_eq!(store.find_order(Some(ada), 1).await.unwrap(), None);
        assert!(store.find_key(&key.hash()).await.unwrap().is_some());

        // Ids follow the new animals, and the idempotency key is free again.
        assert_eq!(create_pet(&store, "Mimi", PetStatus::Available).await.unwrap(), 3);
        assert!(matches!(place(&store, ada, 3).await, Outcome::Executed(Order { id: 1, .. })));

        assert_eq!(store.reset(animals(0), OPERATOR, || false).await.unwrap(), 0);
        assert_eq!((store.before_reset().await.unwrap(), store.resets().await.unwrap()), (EMPTY, 2));
        assert_eq!(create_pet(&store, "Rex", PetStatus::Available).await.unwrap(), 1);
    });
}

#[test]
fn reset_that_fails_changes_nothing() {
    on_every_database(async |store| {
        let ada = fill(&store).await;
        let before = store.before_reset().await.unwrap();
        let broken = animals(1_500).chain([Err("line 1501: broken".to_owned())]);

        let failed = store.reset(Box::new(broken), OPERATOR, || false).await;

        assert!(matches!(failed, Err(StoreError::Refused(why)) if why == "line 1501: broken"));
        assert_eq!((store.before_reset().await.unwrap(), store.resets().await.unwrap()), (before, 0));
        assert_eq!(store.find_pet(1).await.unwrap().unwrap().name, "Rex");
        assert!(matches!(place(&store, ada, 1).await, Outcome::Replayed(_)));
        assert_eq!(create_pet(&store, "Mimi", PetStatus::Available).await.unwrap(), 4);
    });
}

#[test]
fn readers_see_the_old_or_the_new_animals() {
    on_every_database(async |store| {
        let named = |turn: u32| Box::new((0..50).map(move |_| Ok(new_pet(&turn.to_string(), PetStatus::Available))));
        store.reset(named(0), OPERATOR, || false).await.unwrap();
        let readers = [(); 2].map(|()| {
            spawn(&store, |store| async move {
                let mut seen = BTreeSet::new();
                while seen.len() < 5 {
                    let mut page = Vec::new();
                    let mut each = |pet: Pet<'_>| page.push(pet.name.into_owned());
                    assert!(store.list_pets(&PetQuery::default(), &mut each).await.unwrap(), "more than a page");
                    page.dedup();
                    assert_eq!(page.len(), 1, "one state: {page:?}");
                    seen.extend(page);
                    tokio::task::yield_now().await;
                }
            })
        });
        for turn in (1..20_000).take_while(|turn| *turn < 10 || !readers.iter().all(JoinHandle::is_finished)) {
            store.reset(named(turn), OPERATOR, || false).await.unwrap();
            assert_eq!(store.find_pet(50).await.unwrap().unwrap().name, turn.to_string());
        }
        for reader in readers {
            assert!(reader.is_finished(), "no resets happened between reads");
            reader.await.unwrap();
        }
    });
}

#[tokio::test]
async fn production_store_is_not_reset() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = open_sqlite(&sqlite::Options::new(folder.path()));
    let production = Options { create: Some(Deployment::Production), ..options(&postgres::database()) };
    let postgresql = open_with(&production).await;
    for store in [sqlite, postgresql] {
        create_pet(&store, "Rex", PetStatus::Available).await.unwrap();
        for refused in [store.before_reset().await.map(|_| 0), store.reset(animals(0), OPERATOR, || false).await] {
            let Err(StoreError::Refused(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("production"), "{why}");
        }
        assert_eq!(store.count_pets().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn role_that_does_not_own_the_tables_is_told_the_owner() {
    let url = postgres::database();
    let owner = open_postgresql(&url).await;
    let grants = "CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA public TO clerk;
        GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA public TO clerk";
    query(&url, grants);
    let clerk = url.replace("petstore@", "clerk@");
    let store = open_postgresql(&clerk).await;

    let Err(StoreError::Refused(why)) = store.before_reset().await else { panic!("refused") };

    let refused = "the role clerk does not own the tables: run `petstore reset` with the role petstore";
    assert_eq!(why, refused);
    assert_eq!(store.reset(animals(0), OPERATOR, || false).await.unwrap_err().to_string(), refused);
    // Control: PostgreSQL would refuse it too.
    let truncated = try_query(&clerk, "TRUNCATE pets, orders RESTART IDENTITY");
    assert!(truncated.unwrap_err().contains("must be owner"));
    assert_eq!(owner.reset(animals(1), OPERATOR, || false).await.unwrap(), 1);
}

/// A dump reads a table for a long time. Requests are served meanwhile, because a reset does not wait in front of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_that_waits_for_a_dump_lets_requests_pass() {
    let url = postgres::database();
    let (store, other) = (open_postgresql(&url).await, open_postgresql(&url).await);
    let ada = fill(&store).await;
    let dump = OpenTransaction::begin(&url, "SELECT count(*) FROM orders");
    let reset = spawn(&store, |store| async move { store.reset(animals(2), OPERATOR, || false).await });
    within(TIMEOUT, "waiting for the lock", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    for _ in 0..5 {
        create_pet(&other, "meanwhile", PetStatus::Available).await.unwrap();
        assert!(other.find_order(Some(ada), 1).await.unwrap().is_some(), "nothing has changed yet");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    dump.release();

    assert_eq!(reset.await.unwrap().unwrap(), 2);
    assert_eq!(other.before_reset().await.unwrap(), Contents { animals: 2, ..EMPTY });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_resets_follow_each_other() {
    let url = postgres::database();
    let (one, other) = (open_postgresql(&url).await, open_postgresql(&url).await);
    let (first, second) =
        tokio::join!(one.reset(animals(1_000), OPERATOR, || false), other.reset(animals(1_000), OPERATOR, || false));
    assert_eq!((first.unwrap(), second.unwrap()), (1_000, 1_000));
    assert_eq!(query(&url, "SELECT count(*), min(id), max(id) FROM pets"), "1000|1|1000");
    assert_eq!(one.resets().await.unwrap(), 2);
}

/// Creates three animals, a message, and an order with an idempotency key.
async fn fill(store: &Store) -> AccountId {
    let ada = account(store, "ada@example.com").await;
    for name in ["Rex", "Mimi", "Luna"] {
        create_pet(store, name, PetStatus::Available).await.unwrap();
    }
    assert!(matches!(place(store, ada, 1).await, Outcome::Executed(Order { id: 1, .. })));
    store.create_message(message(ada, "Hello", NOW), None).await.unwrap();
    ada
}

/// Orders an animal with an idempotency key, always the same one. All these requests count as the same one.
async fn place(store: &Store, account: AccountId, pet_id: i64) -> Outcome<Order, PlaceOrderError> {
    let key = IdempotencyKey::parse(b"once").unwrap();
    let request = KeyedRequest::new(account, "placeOrder", &key, "/v1/store/orders", "{}", NOW);
    let key = WriteKey::new(request, |order: &Order| StoredResponse::json(201, order.id.to_string().into()));
    store.place_order(NewOrder { account, pet_id, now: NOW }, Some(key)).await.unwrap()
}
