//! Orders, on either database.

use super::sqlite::Batch;
use super::{AnswerTo, Result, Store, postgres, sqlite};
use crate::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use crate::domain::{AccountId, KeyedRequest, NewOrder, Order, OrderQuery, OrderStep, Outcome, Timestamp};

impl Store {
    /// Places an order and reserves its animal, where that is available.
    pub async fn place_order(&self, order: NewOrder) -> Result<Placing> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::orders::place(batch, &order)).await,
            Self::Postgres(db) => Box::pin(db.place_order(order)).await,
        }
    }

    /// The same, unless the request's key was used before: the order and the answer to it are kept together or not at all.
    pub async fn place_order_once(
        &self,
        request: KeyedRequest,
        order: NewOrder,
        answer: AnswerTo<Order>,
    ) -> Result<Outcome<NotPlaced>> {
        match self {
            Self::Sqlite(db) => {
                let place =
                    move |batch: &Batch<'_>| Ok(sqlite::orders::place(batch, &order)?.map(|order| answer(&order)));
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, place)).await
            }
            Self::Postgres(db) => Box::pin(db.place_order_once(request, order, answer)).await,
        }
    }

    /// Shows `each` the orders of `account` that are asked for, in order of their ids; says whether more of them follow.
    pub async fn list_orders(
        &self,
        account: AccountId,
        query: &OrderQuery,
        each: &mut (dyn FnMut(Order) + Send),
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::orders::list(conn, account, query, each)),
            Self::Postgres(db) => Box::pin(postgres::orders::list(db, account, query, each)).await,
        }
    }

    /// Takes an account's order a step on, and its animal with it.
    pub async fn step_order(&self, account: AccountId, id: i64, step: OrderStep, now: Timestamp) -> Result<Stepping> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::orders::take_step(conn, account, id, step, now)).await
            }
            Self::Postgres(db) => postgres::orders::take_step(db, account, id, step, now).await,
        }
    }

    /// The same, unless the request's key was used before: the step and the answer to it are kept together or not at all.
    pub async fn step_order_once(
        &self,
        request: KeyedRequest,
        id: i64,
        step: OrderStep,
        now: Timestamp,
        answer: AnswerTo<Order>,
    ) -> Result<Outcome<NotTaken>> {
        match self {
            Self::Sqlite(db) => {
                let account = request.account;
                let step = move |batch: &Batch<'_>| {
                    Ok(sqlite::orders::take_step(batch, account, id, step, now)?.map(|order| answer(&order)))
                };
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, step)).await
            }
            Self::Postgres(db) => Box::pin(db.step_order_once(request, id, step, now, answer)).await,
        }
    }
}
