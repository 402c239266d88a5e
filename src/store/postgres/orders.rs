//! Orders, and the status of the animals they are for, which moves with them.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::{FromSql, ToSql, Type, accepts};
use tokio_postgres::{Client, Error, Row};

use super::Postgres;
use super::batch_writer::Write;
use super::connection::PreparedConnection;
use super::idempotency::{Answered, Effect};
use super::pets;
use super::rows::show;
use crate::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderStatus, OrderStep, PetStatus, Timestamp};
use crate::store::{AnswerTo, Result};

/// Orders for different animals. Shows those that were placed, and then, without an order, the animals there are.
///
/// The account's row is locked, so that none that is being deleted gets an order. The animals are locked in order of their
/// ids, so that no two batches wait for each other. Who had to wait sees by then whether the animal still is available. The constraint `orders_of_pet` has the last word.
///
/// `turn` makes ids visible in increasing order, as in [`pets::INSERT`]. The statement takes its lock after all row
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

/// The order is locked first. A step waits for the one before it, and then sees where that left the order.
const TAKE_STEP: &str = "WITH own AS (
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
pub const WRITES: &[&str] = &[TAKE_STEP];

impl Write for NewOrder {
    type Answer = Placing;

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn statements() -> Vec<&'static str> {
        vec![PLACE]
    }

    async fn run(prepared: &PreparedConnection, batch: &[Self]) -> std::result::Result<Vec<Placing>, Error> {
        // Of those for one animal, the first may get it.
        let mut first = HashMap::with_capacity(batch.len());
        batch.iter().enumerate().for_each(|(position, order)| _ = first.entry(order.pet_id).or_insert(position));
        let given = || batch.iter().enumerate().filter(|(position, order)| first[&order.pet_id] == *position);
        let accounts: Vec<_> = given().map(|(_, order)| order.account.0).collect();
        let pets: Vec<_> = given().map(|(_, order)| order.pet_id).collect();
        let times: Vec<_> = given().map(|(_, order)| order.now.as_milliseconds()).collect();
        let (placed, available) = (OrderStatus::Placed, pets::to_column(PetStatus::Available));
        let rows = prepared
            .query(PLACE, &[&accounts, &pets, &times, &available, &to_column(placed), &pets::to_column(placed.pet())])
            .await?;
        let (mut placed, mut there) = (HashMap::new(), HashSet::new());
        for row in &rows {
            let pet: i64 = row.try_get(0)?;
            match row.try_get::<_, Option<i64>>(1)? {
                Some(id) => _ = placed.insert(pet, id),
                None => _ = there.insert(pet),
            }
        }
        let outcome = |(position, order): (usize, &Self)| match placed.get(&order.pet_id) {
            Some(id) if first[&order.pet_id] == position => Ok(order.with_id(*id)),
            _ if there.contains(&order.pet_id) => Err(NotPlaced::NotAvailable),
            _ => Err(NotPlaced::NoSuchPet),
        };
        Ok(batch.iter().enumerate().map(outcome).collect())
    }
}

pub async fn take_step(
    db: &Postgres,
    account: AccountId,
    id: i64,
    step: OrderStep,
    now: Timestamp,
) -> Result<Stepping> {
    let asked = step_parameters(step, now);
    let rows = db.write(TAKE_STEP, &asked.with(&id, &account.0)).await?;
    Ok(stepping(&rows, step)?)
}

/// What a step asks for, apart from whose order it is.
struct StepParameters {
    from: Vec<i16>,
    to: i16,
    pet: i16,
    now: i64,
}

fn step_parameters(step: OrderStep, now: Timestamp) -> StepParameters {
    let (from, to) = step.rule();
    let from = from.iter().map(|status| to_column(*status)).collect();
    StepParameters { from, to: to_column(to), pet: pets::to_column(to.pet()), now: now.as_milliseconds() }
}

impl StepParameters {
    fn with<'a>(&'a self, id: &'a i64, account: &'a i64) -> [&'a (dyn ToSql + Sync); 6] {
        [id, account, &self.from, &self.to, &self.pet, &self.now]
    }
}

fn stepping(rows: &[Row], step: OrderStep) -> std::result::Result<Stepping, Error> {
    let Some(row) = rows.first() else { return Ok(Err(NotTaken::NoSuchOrder)) };
    let moved_at: Option<i64> = row.try_get(4)?;
    match moved_at {
        Some(moved_at) => order(row, step.rule().1, moved_at).map(Ok),
        None => Ok(Err(NotTaken::NotNow(row.try_get(2)?))),
    }
}

/// Cancels what can be cancelled of an account's orders, within a transaction that has locked the account's row: nobody
/// else could, and their animals would stay reserved.
pub async fn cancel_all(client: &Client, account: AccountId, now: Timestamp) -> std::result::Result<(), Error> {
    let (from, to) = OrderStep::Cancel.rule();
    let from: Vec<_> = from.iter().map(|status| to_column(*status)).collect();
    let cancel = "WITH cancelled AS (
            UPDATE orders SET status = $3, updated_at = greatest(updated_at, $5)
            WHERE account_id = $1 AND status = ANY ($2::smallint[]) RETURNING pet_id
        )
        UPDATE pets SET status = $4 WHERE id IN (SELECT pet_id FROM cancelled)";
    let (status, pet, now) = (to_column(to), pets::to_column(to.pet()), now.as_milliseconds());
    client.execute(cancel, &[&account.0, &from, &status, &pet, &now]).await.map(|_| ())
}

/// An order that came with an `Idempotency-Key`.
pub struct PlaceOrder {
    pub order: NewOrder,
    pub answer: AnswerTo<Order>,
}

impl Effect for PlaceOrder {
    type Refusal = NotPlaced;

    fn bytes(&self) -> usize {
        self.order.bytes()
    }

    fn statements() -> Vec<&'static str> {
        NewOrder::statements()
    }

    async fn carry_out(
        prepared: &PreparedConnection,
        batch: &[&Self],
    ) -> std::result::Result<Vec<Answered<Self>>, Error> {
        let orders: Vec<_> = batch.iter().map(|place| place.order).collect();
        let placed = NewOrder::run(prepared, &orders).await?;
        let answered = batch.iter().zip(placed);
        Ok(answered.map(|(place, placing)| placing.map(|order| (place.answer)(&order))).collect())
    }
}

/// A step that came with an `Idempotency-Key`.
pub struct StepOrder {
    pub account: AccountId,
    pub id: i64,
    pub step: OrderStep,
    pub now: Timestamp,
    pub answer: AnswerTo<Order>,
}

impl Effect for StepOrder {
    type Refusal = NotTaken;

    /// With several in a transaction, two processes could wait for each other's orders.
    const AT_ONCE: usize = 1;

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn statements() -> Vec<&'static str> {
        vec![TAKE_STEP]
    }

    async fn carry_out(
        prepared: &PreparedConnection,
        batch: &[&Self],
    ) -> std::result::Result<Vec<Answered<Self>>, Error> {
        let mut answered = Vec::with_capacity(batch.len());
        for Self { account, id, step, now, answer } in batch {
            let asked = step_parameters(*step, *now);
            let rows = prepared.query(TAKE_STEP, &asked.with(id, &account.0)).await?;
            answered.push(stepping(&rows, *step)?.map(|order| answer(&order)));
        }
        Ok(answered)
    }
}

/// Reads one row more than asked for: whether it is there tells if another page follows.
pub async fn list(
    db: &Postgres,
    account: AccountId,
    query: &OrderQuery,
    each: &mut (dyn FnMut(Order) + Send),
) -> Result<bool> {
    let after = query.after.unwrap_or(i64::MIN);
    let one_more = query.limit.get() + 1;
    let rows = match query.status {
        Some(status) => {
            let parameters: [&(dyn ToSql + Sync); 4] = [&account.0, &to_column(status), &after, &one_more];
            db.readers.query(LIST_BY_STATUS, &parameters).await?
        }
        None => db.readers.query(LIST, &[&account.0, &after, &one_more]).await?,
    };
    show(&rows, query.limit, |row| {
        each(order(row, row.try_get(2)?, row.try_get(4)?)?);
        Ok(())
    })
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
