//! Orders.

use super::{Outcome, Result, Store, WriteKey};
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderTransition};

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
