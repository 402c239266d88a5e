//! What becomes of messages: each waits for the relay until a broker has acknowledged it, and then is sent.

use super::{AccountId, Email, Message, Timestamp};

/// A message, whose it is, and when it left the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    pub message: Message,
    pub account: Email,
    /// When a broker acknowledged it; nothing while it waits.
    pub sent_at: Option<Timestamp>,
}

/// A message, and the time at which a broker acknowledged it. `None` while the message is queued.
pub type TrackedMessage = (Message, Option<Timestamp>);

/// Whether a message has left the queue. The API calls both `queued`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MessageState {
    Waiting,
    Sent,
}

/// Which messages are asked for, of all accounts or of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageQuery {
    pub account: Option<AccountId>,
    pub state: Option<MessageState>,
    /// The newest of them first, at most so many; else all, account by account, the oldest first.
    pub newest: Option<u32>,
}
