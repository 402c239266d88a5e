//! Orders in SQLite, and the status of the ordered animals, which changes with them.

use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{Action, NewOrder, Order, OrderStatus, OrderTransition, PetStatus, Role, Transition};
use crate::store::Result;
use crate::store::accounts::FIND_EMAIL;
use crate::store::orders::{FIND, LISTS_OF_ALL, Lists};
use crate::store::pets;
use crate::store::row::FromRow;
use crate::store::sqlite::WriteConnection;
use crate::store::transaction::{Transaction, at_once};

/// SQLite merges the four ordered lists while it reads, and reads no more of each than it returns.
macro_rules! list_of {
    ($start:literal, $direction:literal) => {
        concat!(
            select!("WHERE account_id = ?1 AND status = 0 AND id "),
            $start,
            " UNION ALL ",
            select!("WHERE account_id = ?1 AND status = 1 AND id "),
            $start,
            " UNION ALL ",
            select!("WHERE account_id = ?1 AND status = 2 AND id "),
            $start,
            " UNION ALL ",
            select!("WHERE account_id = ?1 AND status = 3 AND id "),
            $start,
            " ORDER BY id ",
            $direction,
            " LIMIT ?3",
        )
    };
}

pub const LISTS: Lists = [
    [
        LISTS_OF_ALL,
        [
            select!("WHERE status = ?1 AND id > ?2 ORDER BY id LIMIT ?3"),
            select!("WHERE status = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"),
        ],
    ],
    [
        [list_of!("> ?2", "ASC"), list_of!("< ?2", "DESC")],
        [
            select!("WHERE account_id = ?1 AND status = ?2 AND id > ?3 ORDER BY id LIMIT ?4"),
            select!("WHERE account_id = ?1 AND status = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"),
        ],
    ],
];

/// The constraint `orders_of_pet` decides: an ordered animal gets no second order, even if its own row says that it is
/// available.
pub fn place(conn: &WriteConnection<'_>, order: &NewOrder) -> Result<Result<Order, PlaceOrderError>> {
    let (placed, available) = (OrderStatus::Placed, PetStatus::Available);
    let reserved = conn.execute(
        "UPDATE pets SET status = ?3 WHERE id = ?1 AND status = ?4
            AND (SELECT deleted_at IS NULL FROM accounts WHERE id = ?2)",
        (order.pet_id, order.account.0, placed.pet().code(), available.code()),
    )?;
    if reserved == 0 {
        let exists = conn.find("SELECT 1 FROM pets WHERE id = ?1", [order.pet_id], |_| Ok(()))?.is_some();
        return Ok(Err(if exists { PlaceOrderError::NotAvailable } else { PlaceOrderError::PetNotFound }));
    }
    let inserted = conn.execute(
        "INSERT INTO orders (account_id, pet_id, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT DO NOTHING",
        (order.account.0, order.pet_id, placed.code(), order.now.as_milliseconds()),
    )?;
    if inserted == 0 {
        pets::sqlite::set_status(conn, order.pet_id, available)?;
        return Ok(Err(PlaceOrderError::NotAvailable));
    }
    Ok(Ok(order.with_id(conn.last_insert_rowid())))
}

pub fn apply(conn: &WriteConnection<'_>, request: OrderTransition) -> Result<Result<Order, TransitionError>> {
    let OrderTransition { account, role, order: id, transition, actor } = request;
    let customer = (role == Role::Customer).then_some(account.0);
    let found = conn.find(FIND.sqlite, (id, customer), |row| Order::from_row(row))?;
    let Some(order) = found else { return Ok(Err(TransitionError::NotFound)) };
    let Some(moved) = order.after(transition, actor.at) else {
        return Ok(Err(TransitionError::WrongStatus { transition, status: order.status }));
    };
    conn.execute(
        "UPDATE orders SET status = ?2, updated_at = ?3 WHERE id = ?1",
        (id, moved.status.code(), moved.updated_at.as_milliseconds()),
    )?;
    if moved.status.pet() != order.status.pet() {
        pets::sqlite::set_status(conn, moved.pet_id, moved.status.pet())?;
    }
    if account != order.account || transition == Transition::Cancel {
        let customer: String = conn.query_row(FIND_EMAIL.sqlite, [order.account.0], |row| row.get(0))?;
        let subject = format!("order {id} of {customer}");
        at_once(conn.record(&actor, Action::step(transition), &subject))?;
    }
    Ok(Ok(moved))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::plan;

    #[test]
    fn lists_of_a_customer_read_one_index_and_nothing_else() {
        let ascending = "SEARCH orders USING COVERING INDEX orders_by_status (account_id=? AND status=? AND id>?)";
        let descending = ascending.replace('>', "<");
        for (by_status, all, step) in
            [(LISTS[1][1][0], LISTS[1][0][0], ascending), (LISTS[1][1][1], LISTS[1][0][1], &*descending)]
        {
            assert_eq!(plan(by_status), [step]);
            let steps = plan(all);
            assert_eq!(steps.iter().filter(|found| *found == step).count(), OrderStatus::ALL.len(), "{steps:#?}");
            assert!(steps.iter().all(|found| found == step || !found.contains("orders")), "{steps:#?}");
            assert!(!steps.iter().any(|found| found.contains("TEMP B-TREE")), "{steps:#?}");
        }
    }

    #[test]
    fn lists_of_all_orders_read_in_order() {
        for (sql, step) in [
            (LISTS[0][0][0], "SEARCH orders USING INTEGER PRIMARY KEY (rowid>?)"),
            (LISTS[0][0][1], "SEARCH orders USING INTEGER PRIMARY KEY (rowid<?)"),
            (LISTS[0][1][0], "SEARCH orders USING INDEX orders_of_all_by_status (status=? AND id>?)"),
            (LISTS[0][1][1], "SEARCH orders USING INDEX orders_of_all_by_status (status=? AND id<?)"),
        ] {
            assert_eq!(plan(sql), [step]);
        }
    }
}
