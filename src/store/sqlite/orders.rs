//! Orders, and the status of the animals they are for, which moves with them.

use rusqlite::{Connection, Row};

use super::rows::show;
use super::{Batch, pets};
use crate::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderStatus, OrderStep, PetStatus, Timestamp};
use crate::store::Result;

/// The constraint `orders_of_pet` has the last word: an animal that has an order gets no second one, whatever its own row
/// says.
pub fn place(batch: &Batch<'_>, order: &NewOrder) -> Result<Placing> {
    let (placed, available) = (OrderStatus::Placed, PetStatus::Available);
    let reserved = batch.execute(
        "UPDATE pets SET status = ?3 WHERE id = ?1 AND status = ?4
            AND (SELECT deleted_at IS NULL FROM accounts WHERE id = ?2)",
        (order.pet_id, order.account.0, pets::to_column(placed.pet()), pets::to_column(available)),
    )?;
    if reserved == 0 {
        let exists = batch.find("SELECT 1 FROM pets WHERE id = ?1", [order.pet_id], |_| Ok(()))?.is_some();
        return Ok(Err(if exists { NotPlaced::NotAvailable } else { NotPlaced::NoSuchPet }));
    }
    let inserted = batch.execute(
        "INSERT INTO orders (account_id, pet_id, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT DO NOTHING",
        (order.account.0, order.pet_id, to_column(placed), order.now.as_milliseconds()),
    )?;
    if inserted == 0 {
        pets::set_status(batch, order.pet_id, available)?;
        return Ok(Err(NotPlaced::NotAvailable));
    }
    Ok(Ok(order.with_id(batch.last_insert_rowid())))
}

pub fn take_step(batch: &Batch<'_>, account: AccountId, id: i64, step: OrderStep, now: Timestamp) -> Result<Stepping> {
    let order = batch.find(
        "SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE id = ?1 AND account_id = ?2",
        (id, account.0),
        from_row,
    )?;
    let Some(order) = order else { return Ok(Err(NotTaken::NoSuchOrder)) };
    let Some(moved) = order.after(step, now) else { return Ok(Err(NotTaken::NotNow(order.status))) };
    batch.execute(
        "UPDATE orders SET status = ?2, updated_at = ?3 WHERE id = ?1",
        (id, to_column(moved.status), moved.updated_at.as_milliseconds()),
    )?;
    if moved.status.pet() != order.status.pet() {
        pets::set_status(batch, moved.pet_id, moved.status.pet())?;
    }
    Ok(Ok(moved))
}

/// Cancels what can be cancelled of an account's orders: nobody else could, and their animals would stay reserved.
pub fn cancel_all(conn: &Connection, account: AccountId, now: Timestamp) -> Result<()> {
    let (from, to) = OrderStep::Cancel.rule();
    for status in from {
        let status = to_column(*status);
        conn.prepare_cached(
            "UPDATE pets SET status = ?3 WHERE id IN (SELECT pet_id FROM orders WHERE account_id = ?1 AND status = ?2)",
        )?
        .execute((account.0, status, pets::to_column(to.pet())))?;
        conn.prepare_cached(
            "UPDATE orders SET status = ?3, updated_at = max(updated_at, ?4) WHERE account_id = ?1 AND status = ?2",
        )?
        .execute((account.0, status, to_column(to), now.as_milliseconds()))?;
    }
    Ok(())
}

/// The lists of the four statuses, which SQLite merges as it goes: it reads no more of each than it shows.
const LIST_ALL: &str =
    "SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE account_id = ?1 AND status = 0 AND id > ?2
     UNION ALL
     SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE account_id = ?1 AND status = 1 AND id > ?2
     UNION ALL
     SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE account_id = ?1 AND status = 2 AND id > ?2
     UNION ALL
     SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE account_id = ?1 AND status = 3 AND id > ?2
     ORDER BY id LIMIT ?3";

/// Reads one row more than asked for: whether it is there tells if another page follows.
pub fn list(conn: &Connection, account: AccountId, query: &OrderQuery, each: &mut dyn FnMut(Order)) -> Result<bool> {
    let after = query.after.unwrap_or(i64::MIN);
    let one_more = query.limit.get() + 1;
    let mut statement;
    let mut rows = match query.status {
        Some(status) => {
            statement = conn.prepare_cached(
                "SELECT id, pet_id, status, created_at, updated_at FROM orders
                 WHERE account_id = ?1 AND status = ?2 AND id > ?3 ORDER BY id LIMIT ?4",
            )?;
            statement.query((account.0, to_column(status), after, one_more))?
        }
        None => {
            statement = conn.prepare_cached(LIST_ALL)?;
            statement.query((account.0, after, one_more))?
        }
    };
    show(&mut rows, query.limit, |row| from_row(row).map(&mut *each))
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Order> {
    let status: i64 = row.get(2)?;
    Ok(Order {
        id: row.get(0)?,
        pet_id: row.get(1)?,
        status: OrderStatus::ALL
            .into_iter()
            .find(|known| to_column(*known) == status)
            .ok_or(rusqlite::Error::IntegralValueOutOfRange(2, status))?,
        created_at: Timestamp::from_milliseconds(row.get(3)?),
        updated_at: Timestamp::from_milliseconds(row.get(4)?),
    })
}

const fn to_column(status: OrderStatus) -> i64 {
    match status {
        OrderStatus::Placed => 0,
        OrderStatus::Approved => 1,
        OrderStatus::Delivered => 2,
        OrderStatus::Cancelled => 3,
    }
}
