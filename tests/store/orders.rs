//! Orders: what holds on every database.

use std::sync::Arc;

use petstore::domain::account::PasswordDigest;
use petstore::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use petstore::domain::{
    AccountId, Email, NewOrder, NewPet, Order, OrderQuery, OrderStatus, OrderStep, PageLimit, PetName, PetStatus,
    Timestamp,
};
use petstore::store::Store;
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{self, Sqlite};

use crate::backends::on_every_database;
use crate::postgres_server::{Server, query};

const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);
const LATER: Timestamp = Timestamp::from_milliseconds(1_795_167_060_123);

#[tokio::test]
async fn an_order_moves_along_and_its_animal_with_it() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let pet = pet(&store, PetStatus::Available).await;
        let placed = Order { id: 1, pet_id: pet, status: OrderStatus::Placed, created_at: NOW, updated_at: NOW };

        assert_eq!(store.place_order(NewOrder { account: ada, pet_id: pet, now: NOW }).await.unwrap(), Ok(placed));
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        assert_eq!(take(&store, ada, 1, OrderStep::Deliver).await, Err(NotTaken::NotNow(OrderStatus::Placed)));

        let approved = Order { status: OrderStatus::Approved, updated_at: LATER, ..placed };
        assert_eq!(take(&store, ada, 1, OrderStep::Approve).await, Ok(approved));
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        // A clock that was set back does not take the order's time back.
        let earlier = Timestamp::from_milliseconds(0);
        let delivered = Order { status: OrderStatus::Delivered, ..approved };
        let outcome = store.step_order(ada, 1, OrderStep::Deliver, earlier).await.unwrap();
        assert_eq!(outcome, Ok(delivered));
        assert_eq!(status(&store, pet).await, PetStatus::Sold);
        assert_eq!(list(&store, ada, 100, None, None).await, (vec![delivered], false));

        assert_eq!(take(&store, ada, 1, OrderStep::Cancel).await, Err(NotTaken::NotNow(OrderStatus::Delivered)));
        assert_eq!(place(&store, ada, pet).await, Err(NotPlaced::NotAvailable));
        assert_eq!(status(&store, pet).await, PetStatus::Sold);
    })
    .await;
}

#[tokio::test]
async fn an_order_that_is_cancelled_makes_room_for_the_next() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        let pet = pet(&store, PetStatus::Available).await;
        let first = placed(place(&store, ada, pet).await);
        take(&store, ada, first, OrderStep::Approve).await.unwrap();
        assert_eq!(place(&store, grace, pet).await, Err(NotPlaced::NotAvailable));
        assert!(take(&store, ada, first, OrderStep::Cancel).await.is_ok());
        assert_eq!(status(&store, pet).await, PetStatus::Available);

        let second = placed(place(&store, grace, pet).await);
        assert!(second > first);
        assert_eq!(status(&store, pet).await, PetStatus::Pending);
        assert_eq!(take(&store, ada, first, OrderStep::Cancel).await, Err(NotTaken::NotNow(OrderStatus::Cancelled)));
        assert_eq!(status(&store, pet).await, PetStatus::Pending, "an old order has no hold on it any more");
    })
    .await;
}

#[tokio::test]
async fn what_is_not_available_or_not_there_is_not_ordered() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let (pending, sold) = (pet(&store, PetStatus::Pending).await, pet(&store, PetStatus::Sold).await);
        for taken in [pending, sold] {
            assert_eq!(place(&store, ada, taken).await, Err(NotPlaced::NotAvailable));
        }
        for nothing in [i64::MIN, -1, 0, 3, i64::MAX] {
            assert_eq!(place(&store, ada, nothing).await, Err(NotPlaced::NoSuchPet));
        }
        assert_eq!((status(&store, pending).await, status(&store, sold).await), (PetStatus::Pending, PetStatus::Sold));
        assert_eq!(list(&store, ada, 100, None, None).await, (vec![], false));
    })
    .await;
}

#[tokio::test]
async fn an_account_sees_and_moves_its_own_orders_page_by_page() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            own.push(placed(place(&store, ada, pet(&store, PetStatus::Available).await).await));
            others.push(placed(place(&store, grace, pet(&store, PetStatus::Available).await).await));
        }
        for index in [1, 3] {
            take(&store, ada, own[index], OrderStep::Cancel).await.unwrap();
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
        for (index, step) in [(0, OrderStep::Approve), (2, OrderStep::Approve), (2, OrderStep::Deliver)] {
            take(&store, ada, own[index], step).await.unwrap();
        }
        assert_eq!(ids(100, None, None).await, (own.clone(), false), "one of each status is among them");
        for step in OrderStep::ALL {
            assert_eq!(take(&store, ada, others[0], step).await, Err(NotTaken::NoSuchOrder));
            assert_eq!(take(&store, ada, 99, step).await, Err(NotTaken::NoSuchOrder));
        }
        assert!(list(&store, grace, 100, None, None).await.0.iter().all(|order| order.status == OrderStatus::Placed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_order_at_once_an_animal_goes_to_one_of_them() {
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
                            Ok(order) => {
                                assert_eq!(order.pet_id, pet, "an answer is that of its own request");
                                got.push(pet);
                            }
                            outcome => assert_eq!(outcome, Err(NotPlaced::NotAvailable)),
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
async fn of_steps_at_once_each_finds_the_order_where_the_one_before_left_it() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        for _ in 0..20 {
            let pet = pet(&store, PetStatus::Available).await;
            let order = placed(place(&store, ada, pet).await);
            take(&store, ada, order, OrderStep::Approve).await.unwrap();
            let steps = [OrderStep::Deliver, OrderStep::Cancel, OrderStep::Deliver, OrderStep::Cancel].map(|step| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { take(&store, ada, order, step).await })
            });
            let mut done = Vec::new();
            for step in steps {
                match step.await.unwrap() {
                    Ok(order) => done.push(order.status),
                    refused => assert!(matches!(refused, Err(NotTaken::NotNow(_))), "{refused:?}"),
                }
            }
            assert_eq!(done.len(), 1, "delivered or cancelled, and not both: {done:?}");
            assert_eq!(status(&store, pet).await, done[0].pet());
        }
    })
    .await;
}

#[tokio::test]
async fn a_deleted_accounts_open_orders_are_cancelled() {
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
        take(&store, ada, orders[1], OrderStep::Approve).await.unwrap();
        take(&store, ada, orders[2], OrderStep::Approve).await.unwrap();
        take(&store, ada, orders[2], OrderStep::Deliver).await.unwrap();
        take(&store, ada, orders[3], OrderStep::Cancel).await.unwrap();

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
        assert!(take(&store, grace, graces, OrderStep::Approve).await.is_ok());
        // What was in flight meanwhile comes too late.
        assert_eq!(place(&store, ada, pets[0]).await, Err(NotPlaced::NotAvailable));
        assert_eq!(status(&store, pets[0]).await, Available);
    })
    .await;
}

#[tokio::test]
async fn the_constraint_decides_and_no_check_before_it_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::Sqlite(Sqlite::open(&sqlite::Options::new(folder.path())).unwrap());
    let outside = rusqlite::Connection::open(folder.path().join("petstore.db")).unwrap();
    the_constraint_decides(store, |sql| outside.execute_batch(sql).unwrap()).await;
}

#[tokio::test]
async fn the_constraint_decides_and_no_check_before_it_on_postgresql() {
    let url = Server::shared().database();
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
    assert_eq!(place(&store, ada, pet).await, Err(NotPlaced::NotAvailable));
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
    store.create_pet(NewPet { name, category_id: 1, status }).await.unwrap().id
}

async fn status(store: &Store, pet: i64) -> PetStatus {
    store.find_pet(pet).await.unwrap().unwrap().status
}

async fn place(store: &Store, account: AccountId, pet_id: i64) -> Placing {
    store.place_order(NewOrder { account, pet_id, now: NOW }).await.unwrap()
}

fn placed(outcome: Placing) -> i64 {
    outcome.unwrap().id
}

async fn take(store: &Store, account: AccountId, order: i64, step: OrderStep) -> Stepping {
    store.step_order(account, order, step, LATER).await.unwrap()
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
