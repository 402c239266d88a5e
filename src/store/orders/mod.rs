//! Orders.

use rusqlite::params_from_iter;
use tokio_postgres::types::ToSql;

use super::postgres::rows as postgres_rows;
use super::row::FromRow;
use super::sqlite::{Atomicity, Effect, rows};
use super::statement::{Sql, both, id_list};
use super::transaction::Transaction;
use super::{Outcome, Result, Store, WriteKey, page_of};
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{AccountId, Action, Actor, Email, NewOrder, Order, OrderQuery, OrderTransition, Transition};

/// A query for orders.
macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, pet_id, account_id, status, created_at, updated_at FROM orders ", $clauses)
    };
}

pub(super) mod postgres;
mod sqlite;

/// Statements for lists of all customers or of one, with any status or with one, ascending and descending.
type Lists = [[[&'static str; 2]; 2]; 2];

/// Lists of all orders, in both databases.
const LISTS_OF_ALL: [&str; 2] =
    [select!("WHERE id > $1 ORDER BY id LIMIT $2"), select!("WHERE id < $1 ORDER BY id DESC LIMIT $2")];

/// A query for the orders of an animal, of all customers or one and with any status or one. It reads all orders, because an
/// index would slow down every new order.
macro_rules! of_pet {
    ($page:literal) => {
        both(concat!(
            select!("WHERE pet_id = $1 AND account_id = coalesce(CAST($2 AS bigint), account_id)"),
            " AND status = coalesce(CAST($3 AS smallint), status) AND id ",
            $page
        ))
    };
}

/// Lists of the orders of an animal, ascending and descending.
const LISTS_OF_PET: [Sql; 2] = [of_pet!("> $4 ORDER BY id LIMIT $5"), of_pet!("< $4 ORDER BY id DESC LIMIT $5")];

const FIND: Sql = both(select!("WHERE id = $1 AND (CAST($2 AS bigint) IS NULL OR account_id = $2)"));

const NAMES: Sql = among!(
    "SELECT orders.id, pets.name, accounts.email FROM orders JOIN pets ON pets.id = pet_id
    JOIN accounts ON accounts.id = account_id WHERE orders.id",
    "$1"
);

/// Returns the statement for a list. Its parameters are the customer and the status, if they are given, the start and the
/// number of rows.
fn list(lists: &Lists, customer: Option<AccountId>, query: &OrderQuery) -> &'static str {
    let [ascending, descending] = lists[usize::from(customer.is_some())][usize::from(query.status.is_some())];
    query.direction.choose(ascending, descending)
}

/// The texts that people want to see beside the ids in an order.
#[derive(Clone, Debug, Default)]
pub struct OrderNames {
    pub order: i64,
    pub pet: String,
    /// The address of the customer.
    pub customer: String,
}

from_row!(OrderNames { order, pet, customer });

from_row!(Order { id, pet_id, account, status, created_at, updated_at });

impl Store {
    /// Places an order and reserves its animal, if the animal is available.
    pub async fn place_order(
        &self,
        order: NewOrder,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, PlaceOrderError>> {
        match self {
            Self::Sqlite(db) => {
                db.write_keyed(Atomicity::Batch, Effect::Any, key, move |conn| sqlite::place(conn, &order)).await
            }
            Self::Postgres(db) => Box::pin(db.orders.submit(order, key)).await,
        }
    }

    /// Changes the status of an order, and that of its animal.
    pub async fn transition_order(
        &self,
        transition: OrderTransition,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, TransitionError>> {
        match self {
            Self::Sqlite(db) => {
                db.write_keyed(Atomicity::Savepoint, Effect::Any, key, |conn| sqlite::apply(conn, transition)).await
            }
            Self::Postgres(db) => Box::pin(db.transitions.submit(transition, key)).await,
        }
    }

    /// Returns an order. With `customer`, only one of that customer.
    pub async fn find_order(&self, customer: Option<AccountId>, id: i64) -> Result<Option<Order>> {
        self.first(FIND, &[&id, &customer]).await
    }

    /// Passes a page of the orders of `customer`, or of all customers, to `each`, in the direction of the query. Returns
    /// whether more follow.
    pub async fn list_orders(
        &self,
        customer: Option<AccountId>,
        query: &OrderQuery,
        each: &mut (dyn FnMut(Order) + Send),
    ) -> Result<bool> {
        let (start, one_more) = (query.start(), query.limit.get() + 1);
        match self {
            Self::Sqlite(db) => {
                let (sql, status) = (list(&sqlite::LISTS, customer, query), query.status);
                let given = customer.map(|id| id.0).into_iter().chain(status.map(|status| i64::from(status.code())));
                let parameters = params_from_iter(given.chain([start, one_more]));
                let each = |row: &rusqlite::Row<'_>| Order::from_row(row).map(&mut *each);
                db.read(|conn| rows::page(conn, sql, parameters, query.limit, each))
            }
            Self::Postgres(db) => {
                let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(4);
                parameters.extend(customer.iter().map(|id| id as &(dyn ToSql + Sync)));
                parameters.extend(query.status.iter().map(|status| status as &(dyn ToSql + Sync)));
                parameters.extend([&start as &(dyn ToSql + Sync), &one_more]);
                let rows = Box::pin(db.readers.query(list(&postgres::LISTS, customer, query), &parameters)).await?;
                postgres_rows::page(&rows, query.limit, |row| Ok(Order::from_row(row).map(&mut *each)?))
            }
        }
    }

    /// Returns a page of the orders of an animal, of `customer` or of all customers, and whether more follow.
    pub async fn list_orders_of_pet(
        &self,
        pet: i64,
        customer: Option<AccountId>,
        query: &OrderQuery,
    ) -> Result<(Vec<Order>, bool)> {
        let sql = query.direction.choose(LISTS_OF_PET[0], LISTS_OF_PET[1]);
        let (start, one_more) = (query.start(), query.limit.get() + 1);
        Ok(page_of(self.all(sql, &[&pet, &customer, &query.status, &start, &one_more]).await?, query.limit))
    }

    /// Returns the names in the orders with these ids, in any order.
    pub async fn order_names(&self, orders: Vec<i64>) -> Result<Vec<OrderNames>> {
        self.all(NAMES, &[&id_list(orders)]).await
    }
}

/// Cancels the open orders of an account whose row is locked. After its deletion, nobody else could release their animals.
pub(super) async fn cancel_all(tx: &impl Transaction, account: AccountId, email: &Email, actor: &Actor) -> Result<()> {
    let cancel = both(
        "UPDATE orders SET status = $1, updated_at = CASE WHEN updated_at < $2 THEN $2 ELSE updated_at END
        WHERE account_id = $3 AND status = $4 RETURNING id",
    );
    let release = among!("UPDATE pets SET status = $1 FROM orders WHERE pets.id = pet_id AND orders.id", "$2");
    let record = among!(
        "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $1, $2, $3, 'order ' || id || ' of ' || $4, $5, $6 FROM orders WHERE id",
        "$7",
        "ORDER BY id"
    );
    let (from, to) = Transition::Cancel.rule();
    for status in from {
        let cancelled: Vec<(i64,)> = tx.all(cancel, &[&to, &actor.at, &account, status]).await?;
        let orders = id_list(cancelled.into_iter().map(|(id,)| id));
        tx.execute(release, &[&to.pet(), &orders]).await?;
        tx.record_each(record, actor, Action::CancelOrder, email, &orders).await?;
    }
    Ok(())
}
