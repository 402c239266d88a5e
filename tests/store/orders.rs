//! Orders. `tests/api/orders.rs` tells what clients see on each database, and `verification/tests/promises/linearizable.rs` what
//! concurrent clients see.

use petstore::domain::order::{PlaceOrderError, TransitionError};
use petstore::domain::{
    AccountId, Actor, Direction, NewOrder, Order, OrderQuery, OrderStatus, OrderTransition, PageLimit, PetStatus, Role,
    Timestamp, Transition,
};
use petstore::store::{Outcome, Store};

use crate::fixtures::{
    Executed, NOW, account, account_with_password, create_pet, on_every_database, on_every_database_with_sql,
};

const LATER: Timestamp = Timestamp::from_milliseconds(1_795_167_060_123);

#[test]
fn deleting_an_account_cancels_its_open_orders() {
    on_every_database(async |store| {
        let (ada, digest) = account_with_password(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        use Transition::{Approve, Cancel, Deliver};
        for (pet, steps) in (1..).zip([&[][..], &[Approve], &[Approve, Deliver], &[Cancel]]) {
            assert_eq!(self::pet(&store).await, pet);
            let order = placed(place(&store, ada, pet).await);
            for step in steps {
                change(&store, ada, order, *step).await.executed().unwrap();
            }
        }
        let graces = pet(&store).await;
        let graces_order = placed(place(&store, grace, graces).await);

        assert!(store.delete_account(ada, Some(digest), Actor::command_line(LATER)).await.unwrap());

        let left: Vec<_> = list(&store, ada).await.iter().map(|order| order.status).collect();
        let (cancelled, delivered) = (OrderStatus::Cancelled, OrderStatus::Delivered);
        assert_eq!(left, [cancelled, cancelled, delivered, cancelled]);
        use PetStatus::{Available, Pending, Sold};
        for (pet, expected) in (1..).zip([Available, Available, Sold, Available, Pending]) {
            assert_eq!(status(&store, pet).await, expected, "{pet}");
        }
        assert!(change(&store, grace, graces_order, Approve).await.executed().is_some());
        // A concurrent request of the deleted account has no effect.
        assert_eq!(place(&store, ada, 1).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        assert_eq!(status(&store, 1).await, Available);
    });
}

#[test]
fn constraint_prevents_a_second_order() {
    on_every_database_with_sql(async |store, sql| {
        let ada = account(&store, "ada@example.com").await;
        let pet = pet(&store).await;
        placed(place(&store, ada, pet).await);
        // As if a check had missed the order.
        sql("UPDATE pets SET status = 0");
        assert_eq!(place(&store, ada, pet).await, Outcome::Refused(PlaceOrderError::NotAvailable));
        assert_eq!(list(&store, ada).await.len(), 1);

        if let Store::Postgres(_) = *store {
            // As logical replication leaves it. The error is not taken for that of an animal with an order.
            sql("SELECT setval('orders_id_seq', 1, false)");
            let order = NewOrder { account: ada, pet_id: self::pet(&store).await, now: NOW };
            let error = store.place_order(order, None).await.unwrap_err().to_string();
            assert!(error.contains("orders_pkey"), "{error}");
            // Control: the statement names the constraint.
            sql("DROP INDEX orders_of_pet");
            let error = store.place_order(order, None).await.unwrap_err().to_string();
            assert!(error.contains("ON CONFLICT specification"), "{error}");
        } else {
            // Control: nothing else prevents the second order.
            sql("DROP INDEX orders_of_pet");
            placed(place(&store, ada, pet).await);
        }
    });
}

#[test]
fn orders_of_an_animal_are_listed_by_customer_and_status() {
    on_every_database(async |store| {
        let accounts = [account(&store, "ada@example.com").await, account(&store, "grace@example.com").await];
        let [rex, other] = [pet(&store).await, pet(&store).await];
        placed(place(&store, accounts[0], other).await);
        // Orders 2 to 6, of both in turn.
        for number in 2..=6 {
            let customer = accounts[number as usize % 2];
            assert_eq!(placed(place(&store, customer, rex).await), number);
            if number < 6 {
                change(&store, customer, number, Transition::Cancel).await.executed().unwrap();
            }
        }
        let ids = async |customer, status, after, direction| {
            let query = OrderQuery { limit: PageLimit::new(2).unwrap(), status, after, direction };
            let (orders, more) = store.list_orders_of_pet(rex, customer, &query).await.unwrap();
            (orders.iter().map(|order| order.id).collect::<Vec<_>>(), more)
        };
        use Direction::{Ascending, Descending};
        let (ada, cancelled) = (Some(accounts[0]), Some(OrderStatus::Cancelled));
        assert_eq!(ids(None, None, None, Descending).await, (vec![6, 5], true));
        assert_eq!(ids(None, None, Some(4), Descending).await, (vec![3, 2], false));
        assert_eq!(ids(None, None, Some(2), Ascending).await, (vec![3, 4], true));
        assert_eq!(ids(ada, None, None, Ascending).await, (vec![2, 4], true));
        assert_eq!(ids(ada, cancelled, None, Descending).await, (vec![4, 2], false));
        assert_eq!(ids(None, Some(OrderStatus::Placed), None, Descending).await, (vec![6], false));
    });
}

/// Creates an available animal.
async fn pet(store: &Store) -> i64 {
    create_pet(store, "Rex", PetStatus::Available).await.unwrap()
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
    let (role, actor) = (Role::Customer, Box::new(Actor::command_line(LATER)));
    store.transition_order(OrderTransition { account, role, order, transition, actor }, None).await.unwrap()
}

async fn list(store: &Store, account: AccountId) -> Vec<Order> {
    let mut orders = Vec::new();
    store.list_orders(Some(account), &OrderQuery::default(), &mut |order| orders.push(order)).await.unwrap();
    orders
}
