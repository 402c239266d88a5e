//! Messages and the outbox.

pub(super) mod postgres;
pub(super) mod postgres_outbox;
mod query;
mod sqlite;
pub(super) mod sqlite_outbox;

use super::export::{Exported, MessageSink};
use super::row::{FromRow, Row};
use super::{Outcome, RelayLease, Result, Store, WriteKey};
use crate::domain::{
    AccountId, Actor, Direction, Message, MessageId, MessageQuery, MessageRecord, PageLimit, Timestamp, TrackedMessage,
};

/// Size of texts after which a page of messages ends, so that a slow client keeps little in memory: a hundred of the longest
/// messages take 4 MB.
const PAGE_BYTES: usize = 256 * 1024;

/// The row of `meta` with the messages to retry, added to those that the relay has not taken yet.
pub(super) const ADD_RETRIES: &str = "INSERT INTO meta AS kept (key, value) VALUES ('retries', $1)
    ON CONFLICT (key) DO UPDATE SET value = kept.value || ' ' || $1";
pub(super) const FIND_RETRIES: &str = "SELECT value FROM meta WHERE key = 'retries'";
pub(super) const TAKE_RETRIES: &str = "DELETE FROM meta WHERE key = 'retries' RETURNING value";

/// Returns the ids for [`ADD_RETRIES`].
pub(super) fn retries(ids: &[MessageId]) -> String {
    if ids.is_empty() { "all".into() } else { ids.iter().map(MessageId::to_string).collect::<Vec<_>>().join(" ") }
}

/// Reads a page of messages, at most [`PAGE_BYTES`] and one message. Returns whether more rows follow.
pub(super) fn page<E>(
    rows: impl Iterator<Item = std::result::Result<TrackedMessage, E>>,
    limit: PageLimit,
) -> std::result::Result<(Vec<TrackedMessage>, bool), E> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let row = row?;
        if page.len() == limit.get() as usize || bytes > PAGE_BYTES {
            return Ok((page, true));
        }
        bytes += row.0.text.as_str().len();
        page.push(row);
    }
    Ok((page, false))
}

from_row!(Message { id, account, text, created_at });

impl FromRow for TrackedMessage {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok((Message::from_row(row)?, row.column(4)?))
    }
}

impl FromRow for MessageRecord {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self { message: Message::from_row(row)?, sent_at: row.column(4)?, account: row.column(5)? })
    }
}

methods! {
    /// Queues a message; durable once this returns.
    async fn create_message(message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>>;

    /// Returns at most `limit` of an account's messages that follow `after` in the direction of their ids, and whether more
    /// follow. Each message has the time at which it was acknowledged, or `None` while it is queued.
    ///
    /// An id begins with the time at which a process received the message. Messages sent at the same time may become visible
    /// in another order. The difference is at most the duration of a write plus the difference of the processes' clocks.
    async fn list_messages_of(account: AccountId, direction: Direction, after: Option<MessageId>, limit: PageLimit)
        -> Result<(Vec<TrackedMessage>, bool)>;

    /// Returns at most `limit` messages after `after` that are not acknowledged, in order of their accounts and ids.
    /// Requires the relay lease.
    async fn unsent_messages(after: (AccountId, MessageId), limit: u32) -> Result<Vec<Message>>;

    /// Counts the messages that are not acknowledged, up to `up_to`.
    async fn count_unsent_messages(up_to: u32) -> Result<u64>;

    /// Records that the web server has acknowledged these messages.
    async fn mark_messages_sent(messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()>;

    /// Tells the relay to try waiting messages now, or all if `ids` is empty. Returns false, and changes nothing, if one of
    /// them is not waiting.
    async fn retry_messages(ids: Vec<MessageId>) -> Result<bool>;

    /// Takes the ids of [`Self::retry_messages`], or `all`, separated by spaces. `None` if there are none.
    async fn take_retries() -> Result<Option<String>>;

    /// Deletes waiting messages. Returns false, and changes nothing, if one of them is not waiting.
    async fn discard_messages(ids: Vec<MessageId>, actor: Actor) -> Result<bool>;

    /// Deletes at most `limit` of the messages sent before `before`, oldest first. Returns the number deleted.
    async fn delete_sent_messages(before: Timestamp, limit: u32) -> Result<u64>;

    /// Passes the messages of the query to `each`, and stops at the first error it returns. No transaction is open
    /// during the calls.
    async fn export_messages(query: &MessageQuery, each: MessageSink<'_>) -> Exported;

    async fn count_messages(query: &MessageQuery) -> Result<u64>;
}

impl Store {
    /// Acquires the relay lease or confirms it. Returns `false` if another process holds it.
    ///
    /// The holder confirms its lease every few seconds. The first call on a database creates an index of the messages.
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.hold_relay_lease(&mut lease.sqlite).await,
            Self::Postgres(db) => db.hold_relay_lease(&mut lease.postgres).await,
        }
    }
}
