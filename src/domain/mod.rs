//! The store's values and rules. A value that exists is valid. No I/O, HTTP, SQL, command line or clock.

pub mod account;
pub mod api_key;
pub mod audit;
pub mod idempotency;
pub mod message;
mod names;
pub mod order;
pub mod page;
pub mod pet;
mod secret;
pub mod session;
mod text;
pub mod time;
pub mod token_bucket;

pub use account::{Account, AccountId, Email, NewAccount, Role};
pub use api_key::{ApiKey, KeyHash, KeyId, KeyRecord};
pub use audit::{Action, Actor, AuditEntry, AuditFilter};
pub use idempotency::{IdempotencyKey, KeyedRequest};
pub use message::{
    Message, MessageId, MessageIds, MessageQuery, MessageRecord, MessageState, MessageText, TrackedMessage,
};
pub(crate) use names::names;
pub use order::{NewOrder, Order, OrderQuery, OrderStatus, OrderTransition, Transition};
pub use page::{Direction, PageLimit, PageQuery};
pub use pet::{NewPet, Pet, PetName, PetQuery, PetStatus, StatusCounts, sample_animals};
pub use secret::{Secret, random};
pub use session::{Session, SessionHash, SessionToken};
use text::Text;
pub use time::Timestamp;
pub use token_bucket::{Taken, TokenBucket};

names! {
    /// Purpose of a database and of the API keys in it.
    pub enum Deployment {
        Production = "production",
        Staging = "staging",
    }
}

impl std::fmt::Display for Deployment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a parser: a rejected value. The message tells the client what is wrong and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// Formats a number with thousands separators: `10,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Returns `text` as a JSON string.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_json_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("encoding a string into a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_in_threes() {
        let shown = [0, 7, 999, 1_000, 10_000, 123_456, 1_234_567, u64::MAX].map(grouped);
        let expected = ["0", "7", "999", "1,000", "10,000", "123,456", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(shown, expected);
    }
}
