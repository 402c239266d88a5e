//! Orders.

use super::{Outcome, Result, Store, WriteKey};
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderTransition};

/// A query for orders.
macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, pet_id, account_id, status, created_at, updated_at FROM orders ", $clauses)
    };
}

/// A query for names, without the ids of the orders.
macro_rules! names {
    ($ids:literal) => {
        concat!(
            "SELECT orders.id, pets.name, accounts.email FROM orders JOIN pets ON pets.id = pet_id
             JOIN accounts ON accounts.id = account_id WHERE orders.id ",
            $ids
        )
    };
}

pub(super) mod postgres;
pub(super) mod sqlite;

/// Statements for lists of all customers or of one, with any status or with one, ascending and descending.
type Lists = [[[&'static str; 2]; 2]; 2];

/// Lists of all orders, in both databases.
const LISTS_OF_ALL: [&str; 2] =
    [select!("WHERE id > $1 ORDER BY id LIMIT $2"), select!("WHERE id < $1 ORDER BY id DESC LIMIT $2")];

/// Returns the statement for a list. Its parameters are the customer and the status, if they are given, the start and the
/// number of rows.
fn list(lists: &Lists, customer: Option<AccountId>, query: &OrderQuery) -> &'static str {
    let [ascending, descending] = lists[usize::from(customer.is_some())][usize::from(query.status.is_some())];
    query.direction.choose(ascending, descending)
}

/// The texts that people want to see beside the ids in an order.
#[derive(Debug)]
pub struct OrderNames {
    pub order: i64,
    pub pet: String,
    /// The address of the customer.
    pub customer: String,
}

from_row!(OrderNames { order, pet, customer });

from_row!(Order { id, pet_id, account, status, created_at, updated_at });

methods! {
    /// Places an order and reserves its animal, if the animal is available.
    async fn place_order(order: NewOrder, key: Option<WriteKey<Order>>) -> Result<Outcome<Order, PlaceOrderError>>;

    /// Changes the status of an order, and that of its animal.
    async fn transition_order(transition: OrderTransition, key: Option<WriteKey<Order>>)
        -> Result<Outcome<Order, TransitionError>>;

    /// Returns an order. With `customer`, only one of that customer.
    async fn find_order(customer: Option<AccountId>, id: i64) -> Result<Option<Order>>;

    /// Returns the names in the orders with these ids, in any order.
    async fn order_names(orders: Vec<i64>) -> Result<Vec<OrderNames>>;

    /// Passes a page of the orders of `customer`, or of all customers, to `each`, in the direction of the query. Returns
    /// whether more follow.
    async fn list_orders(customer: Option<AccountId>, query: &OrderQuery, each: &mut (dyn FnMut(Order) + Send))
        -> Result<bool>;
}
