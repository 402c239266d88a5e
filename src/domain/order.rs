//! Orders of animals, and the transitions between their statuses.

use super::{AccountId, Actor, PageQuery, PetStatus, Role, Timestamp, names};

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
    /// The fields of its JSON object.
    pub const FIELDS: [&str; 1] = ["petId"];

    pub const fn with_id(self, id: i64) -> Order {
        let Self { account, pet_id, now } = self;
        Order { id, pet_id, account, status: Placed, created_at: now, updated_at: now }
    }
}

/// A transition of an order. The audit records every cancellation, and every other step of another account's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTransition {
    pub account: AccountId,
    /// A customer changes only its own orders.
    pub role: Role,
    pub order: i64,
    pub transition: Transition,
    /// Boxed, because transitions are moved.
    pub actor: Box<Actor>,
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

    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(160);
        self.write_json(&mut json);
        json
    }

    /// Appends the JSON object of the API.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(b"{\"id\":");
        out.extend_from_slice(digits.format(self.id).as_bytes());
        out.extend_from_slice(b",\"petId\":");
        out.extend_from_slice(digits.format(self.pet_id).as_bytes());
        out.extend_from_slice(b",\"accountId\":");
        out.extend_from_slice(digits.format(self.account.0).as_bytes());
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b"\",\"createdAt\":\"");
        self.created_at.write(out);
        out.extend_from_slice(b"\",\"updatedAt\":\"");
        self.updated_at.write(out);
        out.extend_from_slice(b"\"}");
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
