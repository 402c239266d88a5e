//! Orders of animals and their state machine.

use super::{AccountId, Invalid, PageQuery, PetStatus, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderStatus {
    Placed,
    Approved,
    Delivered,
    Cancelled,
}

/// A change of a placed order's status, requested by an operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStep {
    Approve,
    Deliver,
    Cancel,
}

use OrderStatus::{Approved, Cancelled, Delivered, Placed};
use OrderStep::{Approve, Cancel, Deliver};

impl OrderStep {
    pub const ALL: [Self; 3] = [Approve, Deliver, Cancel];

    /// Returns the statuses that allow the step, and the resulting status.
    pub const fn rule(self) -> (&'static [OrderStatus], OrderStatus) {
        match self {
            Approve => (&[Placed], Approved),
            Deliver => (&[Approved], Delivered),
            Cancel => (&[Placed, Approved], Cancelled),
        }
    }

    /// Returns the status after the step. `None` if the step is not allowed from `status`.
    pub fn apply(self, status: OrderStatus) -> Option<OrderStatus> {
        let (from, to) = self.rule();
        from.contains(&status).then_some(to)
    }

    /// Returns the last segment of the operation's path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Approve => "approve",
            Deliver => "deliver",
            Cancel => "cancel",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == text)
    }
}

impl OrderStatus {
    pub const ALL: [Self; 4] = [Placed, Approved, Delivered, Cancelled];

    /// Returns the status of the ordered animal. Only an available animal can be ordered.
    pub const fn pet(self) -> PetStatus {
        match self {
            Placed | Approved => PetStatus::Pending,
            Delivered => PetStatus::Sold,
            Cancelled => PetStatus::Available,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Placed => "placed",
            Approved => "approved",
            Delivered => "delivered",
            Cancelled => "cancelled",
        }
    }

    /// Parses the lower-case name of a status, as the API writes it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| Invalid("must be one of placed, approved, delivered, cancelled".into()))
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
        Order { id, pet_id: self.pet_id, status: Placed, created_at: self.now, updated_at: self.now }
    }
}

/// A stored order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub id: i64,
    pub pet_id: i64,
    pub status: OrderStatus,
    pub created_at: Timestamp,
    /// When the status last changed.
    pub updated_at: Timestamp,
}

impl Order {
    /// Returns the order after a step at `now`. `None` if the step is not allowed. `updated_at` never decreases, even if
    /// the clock is set back.
    pub fn after(self, step: OrderStep, now: Timestamp) -> Option<Self> {
        step.apply(self.status).map(|status| Self { status, updated_at: self.updated_at.max(now), ..self })
    }

    pub fn to_json(self) -> Vec<u8> {
        let mut json = Vec::with_capacity(160);
        self.write_json(&mut json);
        json
    }

    /// Appends the order as the API's JSON object; by hand, as animals are.
    pub fn write_json(self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(b"{\"id\":");
        out.extend_from_slice(digits.format(self.id).as_bytes());
        out.extend_from_slice(b",\"petId\":");
        out.extend_from_slice(digits.format(self.pet_id).as_bytes());
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b"\",\"createdAt\":\"");
        self.created_at.write(out);
        out.extend_from_slice(b"\",\"updatedAt\":\"");
        self.updated_at.write(out);
        out.extend_from_slice(b"\"}");
    }
}

/// Why an order could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlaced {
    /// The animal is pending or sold, because of another order or since it was added.
    NotAvailable,
    NoSuchPet,
}

/// Why an order's status could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The step is not allowed from the order's current status.
    NotNow(OrderStatus),
    /// Other accounts' orders are reported as not found.
    NoSuchOrder,
}

/// Result of placing an order.
pub type Placing = Result<Order, NotPlaced>;

/// Result of a step.
pub type Stepping = Result<Order, NotTaken>;

/// Selects one page of an account's orders.
pub type OrderQuery = PageQuery<OrderStatus>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_machine_has_exactly_four_transitions() {
        let mut transitions = Vec::new();
        for status in OrderStatus::ALL {
            for step in OrderStep::ALL {
                if let Some(to) = step.apply(status) {
                    transitions.push(format!("{} → {} ({})", status.as_str(), to.as_str(), to.pet().as_str()));
                }
            }
        }
        let expected = [
            "placed → approved (pending)",
            "placed → cancelled (available)",
            "approved → delivered (sold)",
            "approved → cancelled (available)",
        ];
        assert_eq!(transitions, expected);
        assert_eq!(Placed.pet(), PetStatus::Pending);
    }

    #[test]
    fn update_time_never_decreases() {
        let time = Timestamp::from_milliseconds;
        let order = NewOrder { account: AccountId(1), pet_id: 31, now: time(1_000) }.with_id(1);
        assert_eq!(order.after(Approve, time(2_000)).unwrap().updated_at, time(2_000));
        assert_eq!(order.after(Approve, time(500)).unwrap().updated_at, time(1_000));
        assert_eq!(order.after(Deliver, time(2_000)), None);
    }

    #[test]
    fn an_order_is_written_as_the_api_shows_it() {
        let now = Timestamp::from_milliseconds(1_795_167_000_123);
        let order = NewOrder { account: AccountId(1), pet_id: 31, now }.with_id(7);
        let json =
            String::from_utf8(order.after(Approve, now.plus(std::time::Duration::from_secs(1))).unwrap().to_json());
        assert_eq!(
            json.unwrap(),
            r#"{"id":7,"petId":31,"status":"approved","createdAt":"2026-11-20T09:30:00.123Z","updatedAt":"2026-11-20T09:30:01.123Z"}"#
        );
    }
}
