//! Orders, and the status of the ordered animals, which changes with them.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{Action, NewOrder, Order, OrderStatus, OrderTransition, PetStatus, Role, Timestamp, Transition};
use crate::store::Result;
use crate::store::audit::client_address;
use crate::store::orders::{FIND, LISTS_OF_ALL, LISTS_OF_PET, Lists, NAMES};
use crate::store::postgres::write::{Write, WriteResult};
use crate::store::row::FromRow;
use postgres_group_commit::PreparedConnection;

/// Places orders for different animals. Returns each placed order with its animal, and then each existing animal without
/// an order.
///
/// The account's row is locked, so that an account that is being deleted gets no order. The animals are locked in order of
/// their ids, so that no two batches wait for each other. A statement that waited for an animal checks again whether it is
/// available. The constraint `orders_of_pet` decides.
///
/// `turn` makes ids visible in increasing order, as `INSERT` of `pets/postgres.rs` does. The statement takes its lock after
/// all row locks and before the first id. A transaction that holds it therefore waits for no other transaction.
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
        ON CONFLICT (pet_id) WHERE status <> 3 DO NOTHING RETURNING pet_id, id
    ), reserved AS (
        UPDATE pets SET status = $6 WHERE id IN (SELECT pet_id FROM placed)
    )
    SELECT pet_id, id FROM placed UNION ALL SELECT id, NULL FROM pets WHERE id IN (SELECT pet_id FROM given)";

/// Locks the order first. A transition therefore waits for the one before it, and sees its result.
const TRANSITION: &str = concat!(
    "WITH own AS (",
    select!("WHERE id = $1 AND ($12::boolean OR account_id = $2) FOR UPDATE"),
    "), moved AS (
        UPDATE orders SET status = $4, updated_at = greatest(own.updated_at, $6) FROM own
        WHERE orders.id = own.id AND own.status = ANY ($3::smallint[])
        RETURNING orders.pet_id, orders.updated_at
    ), animal AS (
        UPDATE pets SET status = $5 FROM moved WHERE pets.id = moved.pet_id AND pets.status <> $5
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $6, $7, $8, 'order ' || own.id || ' of ' || accounts.email, $9, $10
        FROM moved, own JOIN accounts ON accounts.id = own.account_id WHERE own.account_id <> $2 OR $11::boolean
    )
    SELECT own.id, own.pet_id, own.account_id, own.status, own.created_at, moved.updated_at
    FROM own LEFT JOIN moved ON true"
);

/// Lists by a column compare rows, which PostgreSQL reads from one index in order.
pub const LISTS: Lists = [
    [
        LISTS_OF_ALL,
        [
            select!("WHERE (status, id) > ($1, $2) AND status <= $1 ORDER BY status, id LIMIT $3"),
            select!("WHERE (status, id) < ($1, $2) AND status >= $1 ORDER BY status DESC, id DESC LIMIT $3"),
        ],
    ],
    [
        [
            select!("WHERE (account_id, id) > ($1, $2) AND account_id <= $1 ORDER BY account_id, id LIMIT $3"),
            select!(
                "WHERE (account_id, id) < ($1, $2) AND account_id >= $1 ORDER BY account_id DESC, id DESC LIMIT $3"
            ),
        ],
        [
            select!("WHERE account_id = $1 AND (status, id) > ($2, $3) AND status <= $2 ORDER BY status, id LIMIT $4"),
            select!(
                "WHERE account_id = $1 AND (status, id) < ($2, $3) AND status >= $2
                ORDER BY status DESC, id DESC LIMIT $4"
            ),
        ],
    ],
];

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[
    FIND.postgres, NAMES.postgres, LISTS_OF_PET[0].postgres, LISTS_OF_PET[1].postgres, LISTS[0][0][0], LISTS[0][0][1],
    LISTS[0][1][0], LISTS[0][1][1], LISTS[1][0][0], LISTS[1][0][1], LISTS[1][1][0], LISTS[1][1][1],
];

impl Write for NewOrder {
    type Output = Order;
    type Refusal = PlaceOrderError;

    const STATEMENTS: &[&str] = &[PLACE];

    async fn run(prepared: &PreparedConnection, orders: Vec<Self>) -> Result<Vec<WriteResult<Self>>, Error> {
        // Of several orders for one animal, only the first is attempted.
        let mut first = HashMap::with_capacity(orders.len());
        orders.iter().enumerate().for_each(|(position, order)| _ = first.entry(order.pet_id).or_insert(position));
        let (accounts, pets, times): (Vec<_>, Vec<_>, Vec<_>) = orders
            .iter()
            .enumerate()
            .filter(|(position, order)| first[&order.pet_id] == *position)
            .map(|(_, order)| (order.account, order.pet_id, order.now))
            .collect();
        let (placed, available) = (OrderStatus::Placed, PetStatus::Available);
        let rows = prepared.query(PLACE, &[&accounts, &pets, &times, &available, &placed, &placed.pet()]).await?;
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

    const STATEMENTS: &[&str] = &[TRANSITION];

    async fn run(prepared: &PreparedConnection, transitions: Vec<Self>) -> Result<Vec<WriteResult<Self>>, Error> {
        let mut results = Vec::with_capacity(transitions.len());
        for transition in &transitions {
            results.push(apply(prepared, transition).await?);
        }
        Ok(results)
    }
}

async fn apply(
    prepared: &PreparedConnection,
    request: &OrderTransition,
) -> Result<WriteResult<OrderTransition>, Error> {
    let OrderTransition { account, role, order, transition, actor } = request;
    let (from, to) = transition.rule();
    let (pet, is_staff, is_cancel) = (to.pet(), *role == Role::Staff, *transition == Transition::Cancel);
    let (action, name, address) = (Action::step(*transition).as_str(), &*actor.name, client_address(actor));
    let parameters: [&(dyn ToSql + Sync); 12] = [
        order, account, &from, &to, &pet, &actor.at, &action, &name, &address, &actor.request_id, &is_cancel, &is_staff,
    ];
    let rows = prepared.query(TRANSITION, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(Err(TransitionError::NotFound)) };
    Ok(match row.try_get::<_, Option<Timestamp>>(5)? {
        Some(_) => Ok(Order { status: to, ..Order::from_row(row)? }),
        None => Err(TransitionError::WrongStatus { transition: *transition, status: row.try_get(3)? }),
    })
}
