//! Orders on every database.

use std::sync::Arc;

use petstore::domain::account::PasswordDigest;
use petstore::domain::order::{PlaceOrderError, TransitionError};
use petstore::domain::{
    AccountId, Email, NewOrder, NewPet, Order, OrderQuery, OrderStatus, OrderTransition, PageLimit, PetName, PetStatus,
    Timestamp, Transition,
};
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{self, Sqlite};
use petstore::store::{Outcome, Store};
use testkit::PostgresServer;
use testkit::postgres::query;

use crate::backends::on_every_database;

const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);
const LATER: Timestamp = Timestamp::from_milliseconds(1_795_167_060_123);

#[tokio::test]
async fn transitions_change_the_order_and_its_animal() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let pet = pet(&store, PetStatus::Available).await;
        let placed = Order { id: 1, pet_id: pet, status: OrderStatus::Placed, created_at: NOW, updated_at: NOW };

        assert_eq!(place(&store, ada, pet).await, Outcome::Executed(placed));
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        assert_eq!(
            change(&store, ada, 1, Transition::Deliver).await,
            Outcome::Refused(TransitionError::WrongStatus {
                transition: Transition::Deliver,
                status: OrderStatus::Placed
            })
        );

        let approved = Order { status: OrderStatus::Approved, updated_at: LATER, ..placed };
        assert_eq!(change(&store, ada, 1, Transition::Approve).await, Outcome::Executed(approved));
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        // A clock that was set back does not decrease the order's time.
        let earlier = Timestamp::from_milliseconds(0);
        let delivered = Order { status: OrderStatus::Delivered, ..approved };
        let deliver = OrderTransition { account: ada, order: 1, transition: Transition::Deliver, now: earlier };
        let outcome = store.transition_order(deliver, None).await.unwrap();
        assert_eq!(outcome, Outcome::Executed(delivered));
        assert_eq!(status(&store, pet).await, PetStatus::Sold);
        assert_eq!(list(&store, ada, 100, None, None).await, (vec![delivered], false));

        assert_eq!(
            change(&store, ada, 1, Transition::Cancel).await,
            Outcome::Refused(TransitionError::WrongStatus {
                transition: Transition::Cancel,
                status: OrderStatus::Delivered
            })
        );
        assert_eq!(place(&store, ada, pet).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        assert_eq!(status(&store, pet).await, PetStatus::Sold);
    })
    .await;
}

#[tokio::test]
async fn animal_of_a_cancelled_order_can_be_ordered_again() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        let pet = pet(&store, PetStatus::Available).await;
        let first = placed(place(&store, ada, pet).await);
        change(&store, ada, first, Transition::Approve).await.executed().unwrap();
        assert_eq!(place(&store, grace, pet).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        assert!(change(&store, ada, first, Transition::Cancel).await.executed().is_some());
        assert_eq!(status(&store, pet).await, PetStatus::Available);

        let second = placed(place(&store, grace, pet).await);
        assert!(second > first);
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        assert_eq!(
            change(&store, ada, first, Transition::Cancel).await,
            Outcome::Refused(TransitionError::WrongStatus {
                transition: Transition::Cancel,
                status: OrderStatus::Cancelled
            })
        );
        assert_eq!(status(&store, pet).await, PetStatus::Pending, "an old order has no hold on it any more");
    })
    .await;
}

#[tokio::test]
async fn unavailable_and_unknown_animals_are_refused() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let (pending, sold) = (pet(&store, PetStatus::Pending).await, pet(&store, PetStatus::Sold).await);
        for taken in [pending, sold] {
            assert_eq!(place(&store, ada, taken).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        }
        for nothing in [i64::MIN, -1, 0, 3, i64::MAX] {
            assert_eq!(place(&store, ada, nothing).await, Outcome::Refused(PlaceOrderError::PetNotFound));
        }
        assert_eq!((status(&store, pending).await, status(&store, sold).await), (PetStatus::Pending, PetStatus::Sold));
        assert_eq!(list(&store, ada, 100, None, None).await, (vec![], false));
    })
    .await;
}

#[tokio::test]
async fn account_lists_and_changes_only_its_own_orders() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            own.push(placed(place(&store, ada, pet(&store, PetStatus::Available).await).await));
            others.push(placed(place(&store, grace, pet(&store, PetStatus::Available).await).await));
        }
        for index in [1, 3] {
            change(&store, ada, own[index], Transition::Cancel).await.executed().unwrap();
        }
        let ids = async |limit, status, after| {
            let (orders, more) = list(&store, ada, limit, status, after).await;
            (orders.iter().map(|order| order.id).collect::<Vec<_>>(), more)
        };
        assert_eq!(ids(100, None, None).await, (own.clone(), false));
        assert_eq!(ids(4, None, None).await, (own[..4].to_vec(), true));
        assert_eq!(ids(2, None, Some(own[2])).await, (own[3..].to_vec(), false));
        assert_eq!(ids(1, None, Some(i64::MIN)).await, (own[..1].to_vec(), true));
        assert_eq!(ids(2, Some(OrderStatus::Placed), None).await, (vec![own[0], own[2]], true));
        assert_eq!(ids(2, Some(OrderStatus::Placed), Some(own[2])).await, (vec![own[4]], false));
        assert_eq!(ids(2, Some(OrderStatus::Cancelled), None).await, (vec![own[1], own[3]], false));
        assert_eq!(ids(2, Some(OrderStatus::Delivered), None).await, (vec![], false));
        for (index, transition) in [(0, Transition::Approve), (2, Transition::Approve), (2, Transition::Deliver)] {
            change(&store, ada, own[index], transition).await.executed().unwrap();
        }
        assert_eq!(ids(100, None, None).await, (own.clone(), false), "one of each status is among them");
        for transition in Transition::ALL {
            assert_eq!(change(&store, ada, others[0], transition).await, Outcome::Refused(TransitionError::NotFound));
            assert_eq!(change(&store, ada, 99, transition).await, Outcome::Refused(TransitionError::NotFound));
        }
        assert!(list(&store, grace, 100, None, None).await.0.iter().all(|order| order.status == OrderStatus::Placed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn animal_ordered_concurrently_goes_to_one_client() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let mut pets = Vec::new();
        for _ in 0..10 {
            pets.push(pet(&store, PetStatus::Available).await);
        }
        let clients: Vec<_> = (0..64)
            .map(|client| {
                let (store, mut pets) = (Arc::clone(&store), pets.clone());
                pets.rotate_left(client % 10);
                tokio::spawn(async move {
                    let mut got = Vec::new();
                    for pet in pets {
                        match place(&store, ada, pet).await {
                            Outcome::Executed(order) => {
                                assert_eq!(order.pet_id, pet, "an answer is that of its own request");
                                got.push(pet);
                            }
                            outcome => assert_eq!(outcome, Outcome::Refused(PlaceOrderError::NotAvailable)),
                        }
                    }
                    got
                })
            })
            .collect();
        let mut got = Vec::new();
        for client in clients {
            got.extend(client.await.unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, pets, "each animal was given to one client");
        assert_eq!(list(&store, ada, 100, None, None).await.0.len(), 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_transitions_are_serialized() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        for _ in 0..20 {
            let pet = pet(&store, PetStatus::Available).await;
            let order = placed(place(&store, ada, pet).await);
            change(&store, ada, order, Transition::Approve).await.executed().unwrap();
            let steps =
                [Transition::Deliver, Transition::Cancel, Transition::Deliver, Transition::Cancel].map(|step| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move { change(&store, ada, order, step).await })
                });
            let mut done = Vec::new();
            for step in steps {
                match step.await.unwrap() {
                    Outcome::Executed(order) => done.push(order.status),
                    refused => {
                        assert!(
                            matches!(refused, Outcome::Refused(TransitionError::WrongStatus { .. })),
                            "{refused:?}"
                        );
                    }
                }
            }
            assert_eq!(done.len(), 1, "delivered or cancelled, and not both: {done:?}");
            assert_eq!(status(&store, pet).await, done[0].pet());
        }
    })
    .await;
}

#[tokio::test]
async fn deleting_an_account_cancels_its_open_orders() {
    on_every_database(async |store| {
        let digest = PasswordDigest("$argon2id$ada".into());
        let email = Email::parse("ada@example.com").unwrap();
        let ada = store.create_account(email, Some(digest.clone()), NOW).await.unwrap().unwrap();
        let grace = account(&store, "grace@example.com").await;
        let mut pets = Vec::new();
        for _ in 0..5 {
            pets.push(pet(&store, PetStatus::Available).await);
        }
        let mut orders = Vec::new();
        for pet in &pets[..4] {
            orders.push(placed(place(&store, ada, *pet).await));
        }
        let graces = placed(place(&store, grace, pets[4]).await);
        change(&store, ada, orders[1], Transition::Approve).await.executed().unwrap();
        change(&store, ada, orders[2], Transition::Approve).await.executed().unwrap();
        change(&store, ada, orders[2], Transition::Deliver).await.executed().unwrap();
        change(&store, ada, orders[3], Transition::Cancel).await.executed().unwrap();

        assert!(store.delete_account(ada, Some(digest), LATER).await.unwrap());

        let (left, _) = list(&store, ada, 100, None, None).await;
        let left: Vec<_> = left.iter().map(|order| order.status).collect();
        let (cancelled, delivered) = (OrderStatus::Cancelled, OrderStatus::Delivered);
        assert_eq!(left, [cancelled, cancelled, delivered, cancelled]);
        let mut statuses = Vec::new();
        for pet in &pets {
            statuses.push(status(&store, *pet).await);
        }
        use PetStatus::{Available, Pending, Sold};
        assert_eq!(statuses, [Available, Available, Sold, Available, Pending]);
        assert!(change(&store, grace, graces, Transition::Approve).await.executed().is_some());
        // What was in flight meanwhile comes too late.
        assert_eq!(place(&store, ada, pets[0]).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        assert_eq!(status(&store, pets[0]).await, Available);
    })
    .await;
}

#[tokio::test]
async fn constraint_prevents_a_second_order_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::Sqlite(Sqlite::open(&sqlite::Options::new(folder.path())).unwrap());
    let outside = rusqlite::Connection::open(folder.path().join("petstore.db")).unwrap();
    the_constraint_decides(store, |sql| outside.execute_batch(sql).unwrap()).await;
}

#[tokio::test]
async fn constraint_prevents_a_second_order_on_postgresql() {
    let url = PostgresServer::shared().database();
    let options = postgres::Options::new(DatabaseUrl::parse(&url).unwrap());
    let store = Store::Postgres(Box::new(Postgres::open(&options).await.unwrap()));
    the_constraint_decides(store, |sql| _ = query(&url, sql)).await;
}

/// An animal whose row says that it is available, although it was ordered, stands for a check that missed it.
async fn the_constraint_decides(store: Store, sql: impl Fn(&str)) {
    let ada = account(&store, "ada@example.com").await;
    let pet = pet(&store, PetStatus::Available).await;
    placed(place(&store, ada, pet).await);
    sql("UPDATE pets SET status = 0");
    assert_eq!(place(&store, ada, pet).await, Outcome::Refused(PlaceOrderError::NotAvailable));
    assert_eq!(list(&store, ada, 100, None, None).await.0.len(), 1);

    // The control: nothing else has kept the second order off.
    sql("DROP INDEX orders_of_pet");
    placed(place(&store, ada, pet).await);
    store.close().await;
}

async fn account(store: &Store, address: &str) -> AccountId {
    store.create_account(Email::parse(address).unwrap(), None, NOW).await.unwrap().unwrap()
}

async fn pet(store: &Store, status: PetStatus) -> i64 {
    let name = PetName::parse("Rex".to_owned()).unwrap();
    store.create_pet(NewPet { name, category_id: 1, status }, None).await.unwrap().executed().unwrap().id
}

async fn status(store: &Store, pet: i64) -> PetStatus {
    store.find_pet(pet).await.unwrap().unwrap().status
}

async fn place(store: &Store, account: AccountId, pet_id: i64) -> Outcome<Order, PlaceOrderError> {
    store.place_order(NewOrder { account, pet_id, now: NOW }, None).await.unwrap()
}

fn placed(outcome: Outcome<Order, PlaceOrderError>) -> i64 {
    outcome.executed().unwrap().id
}

async fn change(
    store: &Store,
    account: AccountId,
    order: i64,
    transition: Transition,
) -> Outcome<Order, TransitionError> {
    store.transition_order(OrderTransition { account, order, transition, now: LATER }, None).await.unwrap()
}

async fn list(
    store: &Store,
    account: AccountId,
    limit: i64,
    status: Option<OrderStatus>,
    after: Option<i64>,
) -> (Vec<Order>, bool) {
    let mut orders = Vec::new();
    let query = OrderQuery { limit: PageLimit::new(limit).unwrap(), status, after };
    let more = store.list_orders(account, &query, &mut |order| orders.push(order)).await.unwrap();
    (orders, more)
}
