//! Orders, and the status of the animals they are for, which moves with them.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::{FromSql, ToSql, Type, accepts};
use tokio_postgres::{Client, Error, Row};

use super::Postgres;
use super::batch_writer::{Write, WriteResult};
use super::connection::PreparedConnection;
use super::pets;
use super::rows::show;
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{
    AccountId, NewOrder, Order, OrderQuery, OrderStatus, OrderTransition, PetStatus, Timestamp, Transition,
};
use crate::store::{Outcome, Result, WriteKey};

/// Orders for different animals. Shows those that were placed, and then, without an order, the animals there are.
///
/// The account's row is locked, so that none that is being deleted gets an order. The animals are locked in order of their
/// ids, so that no two batches wait for each other. Who had to wait sees by then whether the animal still is available. The constraint `orders_of_pet` has the last word.
///
/// `turn` makes ids visible in increasing order, as in the `INSERT` of `pets`. The statement takes its lock after all row
/// locks and before the first id. A transaction that holds it therefore waits for no other transaction.
const PLACE: &str = "WITH given AS (
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
            WITH ORDINALITY AS given (account_id, pet_id, now, position)
    ), available AS (
        SELECT given.* FROM given
            JOIN accounts ON accounts.id = given.account_id JOIN pets ON pets.id = given.pet_id
        WHERE accounts.deleted_at IS NULL AND pets.status = $4 ORDER BY pets.id
        FOR KEY SHARE OF accounts FOR NO KEY UPDATE OF pets
    ), turn AS MATERIALIZED (
        SELECT pg_advisory_xact_lock('orders'::regclass::int, 0) FROM available HAVING count(*) > 0
    ), placed AS (
        INSERT INTO orders (account_id, pet_id, status, created_at, updated_at)
        SELECT account_id, pet_id, $5, now, now FROM available, turn ORDER BY position
        ON CONFLICT DO NOTHING RETURNING pet_id, id
    ), reserved AS (
        UPDATE pets SET status = $6 WHERE id IN (SELECT pet_id FROM placed)
    )
    SELECT pet_id, id FROM placed UNION ALL SELECT id, NULL FROM pets WHERE id IN (SELECT pet_id FROM given)";

/// Locks the order first. A transition therefore waits for the one before it, and sees its result.
const TRANSITION: &str = "WITH own AS (
        SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE id = $1 AND account_id = $2 FOR UPDATE
    ), moved AS (
        UPDATE orders SET status = $4, updated_at = greatest(own.updated_at, $6) FROM own
        WHERE orders.id = own.id AND own.status = ANY ($3::smallint[]) RETURNING orders.pet_id, orders.updated_at
    ), animal AS (
        UPDATE pets SET status = $5 FROM moved WHERE pets.id = moved.pet_id AND pets.status <> $5
    )
    SELECT own.id, own.pet_id, own.status, own.created_at, moved.updated_at FROM own LEFT JOIN moved ON true";

const LIST: &str = "SELECT id, pet_id, status, created_at, updated_at FROM orders
    WHERE account_id = $1 AND id > $2 ORDER BY id LIMIT $3";

const LIST_BY_STATUS: &str = "SELECT id, pet_id, status, created_at, updated_at FROM orders
    WHERE account_id = $1 AND status = $2 AND id > $3 ORDER BY id LIMIT $4";

/// Statements prepared on connections for reads.
pub const READS: &[&str] = &[LIST, LIST_BY_STATUS];

/// Statements prepared on the connection for single writes.
pub const WRITES: &[&str] = &[TRANSITION];

impl Postgres {
    pub async fn place_order(
        &self,
        order: NewOrder,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, PlaceOrderError>> {
        self.orders.submit(order, key).await
    }

    pub async fn transition_order(
        &self,
        transition: OrderTransition,
        key: Option<WriteKey<Order>>,
    ) -> Result<Outcome<Order, TransitionError>> {
        if key.is_some() {
            return self.keyed_transitions.submit(transition, key).await;
        }
        // Transitions do not share statements, so there is nothing to queue for.
        let parameters = TransitionParameters::of(&transition);
        let rows = self.write(TRANSITION, &parameters.all()).await?;
        Ok(transitioned(&rows, transition.transition)?.into())
    }

    /// Reads one row more than asked for: whether it is there tells if another page follows.
    pub async fn list_orders(
        &self,
        account: AccountId,
        query: &OrderQuery,
        each: &mut (dyn FnMut(Order) + Send),
    ) -> Result<bool> {
        let after = query.after.unwrap_or(i64::MIN);
        let one_more = query.limit.get() + 1;
        let rows = match query.status {
            Some(status) => {
                let parameters: [&(dyn ToSql + Sync); 4] = [&account.0, &to_column(status), &after, &one_more];
                self.readers.query(LIST_BY_STATUS, &parameters).await?
            }
            None => self.readers.query(LIST, &[&account.0, &after, &one_more]).await?,
        };
        show(&rows, query.limit, |row| {
            each(order(row, row.try_get(2)?, row.try_get(4)?)?);
            Ok(())
        })
    }
}

impl Write for NewOrder {
    type Output = Order;
    type Refusal = PlaceOrderError;

    fn statements() -> Vec<&'static str> {
        vec![PLACE]
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    async fn run(
        prepared: &PreparedConnection,
        orders: Vec<Self>,
    ) -> std::result::Result<Vec<WriteResult<Self>>, Error> {
        // Of several orders for one animal, only the first is attempted.
        let mut first = HashMap::with_capacity(orders.len());
        orders.iter().enumerate().for_each(|(position, order)| _ = first.entry(order.pet_id).or_insert(position));
        let given = || orders.iter().enumerate().filter(|(position, order)| first[&order.pet_id] == *position);
        let accounts: Vec<_> = given().map(|(_, order)| order.account.0).collect();
        let pets: Vec<_> = given().map(|(_, order)| order.pet_id).collect();
        let times: Vec<_> = given().map(|(_, order)| order.now.as_milliseconds()).collect();
        let (placed, available) = (OrderStatus::Placed, pets::to_column(PetStatus::Available));
        let rows = prepared
            .query(PLACE, &[&accounts, &pets, &times, &available, &to_column(placed), &pets::to_column(placed.pet())])
            .await?;
        let (mut placed, mut existing) = (HashMap::new(), HashSet::new());
        for row in &rows {
            let pet: i64 = row.try_get(0)?;
            match row.try_get::<_, Option<i64>>(1)? {
                Some(id) => _ = placed.insert(pet, id),
                None => _ = existing.insert(pet),
            }
        }
        let result = |(position, order): (usize, &Self)| match placed.get(&order.pet_id) {
            Some(id) if first[&order.pet_id] == position => Ok(order.with_id(*id)),
            _ if existing.contains(&order.pet_id) => Err(PlaceOrderError::NotAvailable),
            _ => Err(PlaceOrderError::PetNotFound),
        };
        Ok(orders.iter().enumerate().map(result).collect())
    }
}

impl Write for OrderTransition {
    type Output = Order;
    type Refusal = TransitionError;

    /// If transactions had several transitions, two processes could wait for each other's orders.
    const KEYED_BATCH: usize = 1;

    fn statements() -> Vec<&'static str> {
        vec![TRANSITION]
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    async fn run(
        prepared: &PreparedConnection,
        transitions: Vec<Self>,
    ) -> std::result::Result<Vec<WriteResult<Self>>, Error> {
        let mut results = Vec::with_capacity(transitions.len());
        for transition in &transitions {
            let parameters = TransitionParameters::of(transition);
            let rows = prepared.query(TRANSITION, &parameters.all()).await?;
            results.push(transitioned(&rows, transition.transition)?);
        }
        Ok(results)
    }
}

struct TransitionParameters {
    order: i64,
    account: i64,
    from: Vec<i16>,
    to: i16,
    pet: i16,
    now: i64,
}

impl TransitionParameters {
    fn of(request: &OrderTransition) -> Self {
        let (from, to) = request.transition.rule();
        Self {
            order: request.order,
            account: request.account.0,
            from: from.iter().map(|status| to_column(*status)).collect(),
            to: to_column(to),
            pet: pets::to_column(to.pet()),
            now: request.now.as_milliseconds(),
        }
    }

    fn all(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.order, &self.account, &self.from, &self.to, &self.pet, &self.now]
    }
}

/// Reads the result of [`TRANSITION`].
fn transitioned(rows: &[Row], transition: Transition) -> std::result::Result<WriteResult<OrderTransition>, Error> {
    let Some(row) = rows.first() else { return Ok(Err(TransitionError::NotFound)) };
    let updated_at: Option<i64> = row.try_get(4)?;
    match updated_at {
        Some(updated_at) => order(row, transition.rule().1, updated_at).map(Ok),
        None => Ok(Err(TransitionError::WrongStatus { transition, status: row.try_get(2)? })),
    }
}

/// Cancels what can be cancelled of an account's orders, within a transaction that has locked the account's row: nobody
/// else could, and their animals would stay reserved.
pub async fn cancel_all(client: &Client, account: AccountId, now: Timestamp) -> std::result::Result<(), Error> {
    let (from, to) = Transition::Cancel.rule();
    let from: Vec<_> = from.iter().map(|status| to_column(*status)).collect();
    let cancel = "WITH cancelled AS (
            UPDATE orders SET status = $3, updated_at = greatest(updated_at, $5)
            WHERE account_id = $1 AND status = ANY ($2::smallint[]) RETURNING pet_id
        )
        UPDATE pets SET status = $4 WHERE id IN (SELECT pet_id FROM cancelled)";
    let (status, pet, now) = (to_column(to), pets::to_column(to.pet()), now.as_milliseconds());
    client.execute(cancel, &[&account.0, &from, &status, &pet, &now]).await.map(|_| ())
}

fn order(row: &Row, status: OrderStatus, updated_at: i64) -> std::result::Result<Order, Error> {
    Ok(Order {
        id: row.try_get(0)?,
        pet_id: row.try_get(1)?,
        status,
        created_at: Timestamp::from_milliseconds(row.try_get(3)?),
        updated_at: Timestamp::from_milliseconds(updated_at),
    })
}

impl FromSql<'_> for OrderStatus {
    fn from_sql(kind: &Type, raw: &[u8]) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let column = i16::from_sql(kind, raw)?;
        let status = Self::ALL.into_iter().find(|status| to_column(*status) == column);
        status.ok_or_else(|| format!("an order's status is {column}").into())
    }

    accepts!(INT2);
}

const fn to_column(status: OrderStatus) -> i16 {
    match status {
        OrderStatus::Placed => 0,
        OrderStatus::Approved => 1,
        OrderStatus::Delivered => 2,
        OrderStatus::Cancelled => 3,
    }
}
