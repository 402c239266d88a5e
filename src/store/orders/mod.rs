//! Orders.

use super::row::{FromRow, Row};
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

impl FromRow for OrderNames {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self { order: row.column(0)?, pet: row.column(1)?, customer: row.column(2)? })
    }
}

impl FromRow for Order {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self {
            id: row.column(0)?,
            pet_id: row.column(1)?,
            account: AccountId(row.column(2)?),
            status: row.column(3)?,
            created_at: row.column(4)?,
            updated_at: row.column(5)?,
        })
    }
}

impl Store {
    /// Places an order and reserves its animal, if the animal is available.
    pub async fn place_order(
        &self,
        order: NewOrder,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, PlaceOrderError>> {
        match self {
            Self::Sqlite(db) => db.place_order(order, key).await,
            Self::Postgres(db) => Box::pin(db.place_order(order, key)).await,
        }
    }

    /// Changes the status of an order, and that of its animal.
    pub async fn transition_order(
        &self,
        transition: OrderTransition,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, TransitionError>> {
        match self {
            Self::Sqlite(db) => db.transition_order(transition, key).await,
            Self::Postgres(db) => Box::pin(db.transition_order(transition, key)).await,
        }
    }

    /// Returns an order. With `customer`, only one of that customer.
    pub async fn find_order(&self, customer: Option<AccountId>, id: i64) -> Result<Option<Order>> {
        dispatch!(self, db => db.find_order(customer, id).await)
    }

    /// Returns the names in the orders with these ids, in any order.
    pub async fn order_names(&self, orders: Vec<i64>) -> Result<Vec<OrderNames>> {
        dispatch!(self, db => db.order_names(orders).await)
    }

    /// Passes a page of the orders of `customer`, or of all customers, to `each`, in the direction of the query. Returns
    /// whether more follow.
    pub async fn list_orders(
        &self,
        customer: Option<AccountId>,
        query: &OrderQuery,
        each: &mut (dyn FnMut(Order) + Send),
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.list_orders(customer, query, each).await,
            Self::Postgres(db) => Box::pin(db.list_orders(customer, query, each)).await,
        }
    }
}
