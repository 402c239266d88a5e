//! Orders of animals, and the transitions between their statuses.

use super::{AccountId, Actor, PageQuery, PetStatus, Timestamp, names};

names! {
    /// The databases store the codes.
    pub enum OrderStatus {
        Placed = "placed",
        Approved = "approved",
        Delivered = "delivered",
        Cancelled = "cancelled",
    }
}

names! {
    /// A change of an order's status. The name is the last segment of the operation's path.
    pub enum Transition {
        Approve = "approve",
        Deliver = "deliver",
        Cancel = "cancel",
    }
}

use OrderStatus::{Approved, Cancelled, Delivered, Placed};
use Transition::{Approve, Cancel, Deliver};

impl Transition {
    /// The statuses that the transition starts from, and the status that it leads to.
    pub const fn rule(self) -> (&'static [OrderStatus], OrderStatus) {
        match self {
            Approve => (&[Placed], Approved),
            Deliver => (&[Approved], Delivered),
            Cancel => (&[Placed, Approved], Cancelled),
        }
    }

    /// The status after the transition. `None` if it does not start from `status`.
    pub fn apply(self, status: OrderStatus) -> Option<OrderStatus> {
        let (from, to) = self.rule();
        from.contains(&status).then_some(to)
    }
}

impl OrderStatus {
    /// The status of the ordered animal. Only an available animal can be ordered.
    pub const fn pet(self) -> PetStatus {
        match self {
            Placed | Approved => PetStatus::Pending,
            Delivered => PetStatus::Sold,
            Cancelled => PetStatus::Available,
        }
    }
}

/// An order to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    pub account: AccountId,
    pub pet_id: i64,
    pub now: Timestamp,
}

impl NewOrder {
    pub const fn with_id(self, id: i64) -> Order {
        let Self { account, pet_id, now } = self;
        Order { id, pet_id, account, status: Placed, created_at: now, updated_at: now }
    }
}

/// The party that changes the status of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderClerk {
    /// The customer, whose order it must be.
    Customer(AccountId),
    /// An account of the staff. The audit records the step if the order is another account's. Boxed, because most
    /// transitions have no actor, and they are moved.
    Staff(AccountId, Box<Actor>),
}

/// A transition of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTransition {
    pub by: OrderClerk,
    pub order: i64,
    pub transition: Transition,
    pub now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub id: i64,
    pub pet_id: i64,
    /// The customer.
    pub account: AccountId,
    pub status: OrderStatus,
    pub created_at: Timestamp,
    /// Time of the last transition. Never decreases, even if the clock does.
    pub updated_at: Timestamp,
}

impl Order {
    /// The order after a transition at `now`. `None` if the transition does not start from the order's status.
    pub fn after(self, transition: Transition, now: Timestamp) -> Option<Self> {
        transition.apply(self.status).map(|status| Self { status, updated_at: self.updated_at.max(now), ..self })
    }
}

/// Why an order was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceOrderError {
    /// The animal is pending or sold.
    NotAvailable,
    PetNotFound,
}

/// Why a transition was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError {
    /// The transition does not start from the order's status.
    WrongStatus { transition: Transition, status: OrderStatus },
    /// There is no such order, or it is another customer's.
    NotFound,
}

/// Selects a page of orders.
pub type OrderQuery = PageQuery<OrderStatus>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_those_of_the_documented_table() {
        let mut moves = Vec::new();
        for status in OrderStatus::ALL {
            for transition in Transition::ALL {
                if let Some(to) = transition.apply(status) {
                    moves.push(format!("{} → {} ({})", status.as_str(), to.as_str(), to.pet().as_str()));
                }
            }
        }
        let expected = [
            "placed → approved (pending)", "placed → cancelled (available)", "approved → delivered (sold)",
            "approved → cancelled (available)",
        ];
        assert_eq!(moves, expected);
        assert_eq!(Placed.pet(), PetStatus::Pending);
    }

    #[test]
    fn updated_at_never_decreases() {
        let time = Timestamp::from_milliseconds;
        let order = NewOrder { account: AccountId(1), pet_id: 31, now: time(1_000) }.with_id(1);
        assert_eq!(order.after(Approve, time(2_000)).unwrap().updated_at, time(2_000));
        assert_eq!(order.after(Approve, time(500)).unwrap().updated_at, time(1_000));
        assert_eq!(order.after(Deliver, time(2_000)), None);
    }
}
