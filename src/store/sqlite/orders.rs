//! Orders, and the status of the animals they are for, which moves with them.

use rusqlite::{Connection, OptionalExtension, Row};

use super::pets;
use super::rows::show;
use crate::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderStatus, OrderStep, PetStatus, Timestamp};
use crate::store::Result;

/// The constraint `orders_of_pet` has the last word: an animal that has an order gets no second one, whatever its own row
/// says. Nothing is written before it has.
pub fn place(conn: &Connection, order: &NewOrder) -> Result<Placing> {
    let found = conn
        .prepare_cached(
            "SELECT status, (SELECT deleted_at FROM accounts WHERE id = ?2) IS NULL FROM pets WHERE id = ?1",
        )?
        .query_row((order.pet_id, order.account.0), |row| Ok((pets::status(row, 0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => return Ok(Err(NotPlaced::NoSuchPet)),
        Some((PetStatus::Available, true)) => {}
        Some(_) => return Ok(Err(NotPlaced::NotAvailable)),
    }
    let placed = conn
        .prepare_cached(
            "INSERT INTO orders (account_id, pet_id, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
             ON CONFLICT DO NOTHING",
        )?
        .execute((order.account.0, order.pet_id, to_column(OrderStatus::Placed), order.now.as_milliseconds()))?;
    if placed == 0 {
        return Ok(Err(NotPlaced::NotAvailable));
    }
    let order = order.with_id(conn.last_insert_rowid());
    pets::set_status(conn, order.pet_id, order.status.pet())?;
    Ok(Ok(order))
}

pub fn take_step(conn: &Connection, account: AccountId, id: i64, step: OrderStep, now: Timestamp) -> Result<Stepping> {
    let order = conn
        .prepare_cached(
            "SELECT id, pet_id, status, created_at, updated_at FROM orders WHERE id = ?1 AND account_id = ?2",
        )?
        .query_row((id, account.0), from_row)
        .optional()?;
    let Some(order) = order else { return Ok(Err(NotTaken::NoSuchOrder)) };
    let Some(moved) = order.after(step, now) else { return Ok(Err(NotTaken::NotNow(order.status))) };
    conn.prepare_cached("UPDATE orders SET status = ?2, updated_at = ?3 WHERE id = ?1")?.execute((
        id,
        to_column(moved.status),
        moved.updated_at.as_milliseconds(),
    ))?;
    if moved.status.pet() != order.status.pet() {
        pets::set_status(conn, moved.pet_id, moved.status.pet())?;
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
            statement = conn.prepare_cached(
                "SELECT id, pet_id, status, created_at, updated_at FROM orders
                 WHERE account_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
            )?;
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
