//! The message outbox. A message is queued until the web server of the relay has acknowledged it; then it is sent.

use super::{AccountId, Email, Message, Timestamp, names};

/// A message with its account's address and its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    pub message: Message,
    pub account: Email,
    /// When the web server acknowledged the message. `None` while it is queued.
    pub sent_at: Option<Timestamp>,
}

/// A message and the time at which it was acknowledged. `None` while the message is queued.
pub type TrackedMessage = (Message, Option<Timestamp>);

names! {
    /// State of a message in the outbox.
    pub enum MessageState {
        Waiting = "waiting",
        Sent = "sent",
    }
}

/// Selects messages. The default selects all messages of all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageQuery {
    pub account: Option<AccountId>,
    pub state: Option<MessageState>,
    /// Maximum number of messages, newest first. If `None`, lists all by account, oldest first.
    pub newest: Option<u32>,
}
