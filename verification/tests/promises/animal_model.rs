//! The specification of an animal with its orders and idempotency keys, and of an API key.

use crate::linearizability::Model;

/// Number of idempotency keys per animal.
pub const KEYS: usize = 2;

/// An order, by its id. Negative if no client knows the id.
pub type OrderId = i64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Placed,
    Approved,
    Delivered,
    Cancelled,
}

#[derive(Clone, Debug)]
pub enum Operation {
    Create,
    /// A get or a list that shows whether the animal has this status.
    Observe {
        status: &'static str,
        has: bool,
    },
    /// `done` is `None` if the outcome is unknown.
    Place {
        key: Option<usize>,
        order: OrderId,
        done: Option<Placed>,
    },
    Move {
        order: OrderId,
        to: Status,
        done: Option<bool>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    Executed,
    /// The stored response of the idempotency key.
    Replayed,
    /// The animal was not available.
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Animal {
    exists: bool,
    /// The newest order. All others are cancelled.
    order: Option<(OrderId, Status)>,
    /// The order of the stored response of each key.
    keys: [Option<OrderId>; KEYS],
}

impl Animal {
    fn status(&self) -> &'static str {
        match self.order {
            None | Some((_, Status::Cancelled)) => "available",
            Some((_, Status::Placed | Status::Approved)) => "pending",
            Some((_, Status::Delivered)) => "sold",
        }
    }
}

impl Model for Animal {
    type Operation = Operation;

    fn after(&self, operation: &Operation) -> Option<Self> {
        let mut next = self.clone();
        next.exists = true;
        let is_allowed = self.exists != matches!(operation, Operation::Create);
        let is_explained = match *operation {
            Operation::Create => true,
            Operation::Observe { status, has } => (self.status() == status) == has,
            Operation::Place { key, order, done } => {
                let outcome = match key.and_then(|key| self.keys[key]) {
                    Some(stored) if stored == order => Placed::Replayed,
                    Some(_) => return None,
                    None if self.status() == "available" => {
                        next.order = Some((order, Status::Placed));
                        if let Some(key) = key {
                            next.keys[key] = Some(order);
                        }
                        Placed::Executed
                    }
                    None => Placed::Refused,
                };
                done.is_none_or(|done| done == outcome)
            }
            Operation::Move { order, to, done } => {
                let from = self.order.filter(|(newest, _)| *newest == order).map(|(_, status)| status);
                let is_legal = matches!(
                    (from, to),
                    (Some(Status::Placed), Status::Approved | Status::Cancelled)
                        | (Some(Status::Approved), Status::Delivered | Status::Cancelled)
                );
                if is_legal {
                    next.order = Some((order, to));
                }
                done.is_none_or(|done| done == is_legal)
            }
        };
        (is_allowed && is_explained).then_some(next)
    }
}

/// An API key: accepted until it is revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ApiKey {
    revoked: bool,
}

#[derive(Clone, Debug)]
pub enum KeyOperation {
    Use { accepted: bool },
    Revoke,
}

impl Model for ApiKey {
    type Operation = KeyOperation;

    fn after(&self, operation: &KeyOperation) -> Option<Self> {
        match *operation {
            KeyOperation::Use { accepted } => (accepted != self.revoked).then(|| self.clone()),
            KeyOperation::Revoke => Some(Self { revoked: true }),
        }
    }
}
