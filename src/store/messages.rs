//! Messages, and how they leave the queue, on either database.

use super::sqlite::Batch;
use super::{RelayLease, Result, Store, postgres, sqlite};
use crate::domain::{
    AccountId, Answer, KeyedRequest, Message, MessageId, MessageQuery, MessageRecord, Outcome, Timestamp,
    TrackedMessage,
};

impl Store {
    /// Takes a message on; durable once this returns.
    pub async fn create_message(&self, message: Message) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |batch| sqlite::messages::insert(batch, &message)).await,
            Self::Postgres(db) => Box::pin(db.create_message(message)).await,
        }
    }

    /// The same, unless the request's key was used before: the message and the answer to it are kept together or not at
    /// all.
    pub async fn create_message_once(
        &self,
        request: KeyedRequest,
        message: Message,
        answer: Answer,
    ) -> Result<Outcome> {
        match self {
            Self::Sqlite(db) => {
                let insert = move |batch: &Batch<'_>| sqlite::messages::insert(batch, &message).map(|()| Ok(answer));
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, insert)).await
            }
            Self::Postgres(db) => Box::pin(db.create_message_once(request, message, answer)).await,
        }
    }

    /// Returns at most `limit` of an account's messages before `before`, newest first, and whether more follow. Each
    /// message has the time at which the broker acknowledged it, or `None` while it is queued.
    pub async fn list_messages_of(
        &self,
        account: AccountId,
        before: Option<MessageId>,
        limit: u32,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::messages::list_of(conn, account, before, limit)),
            Self::Postgres(db) => postgres::messages::list_of(db, account, before, limit).await,
        }
    }

    /// Takes the right to relay messages, or makes sure of it, which whoever has it does every few seconds; false where
    /// another process has it. The first time on a database it indexes the messages there are.
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        match self {
            Self::Sqlite(db) => sqlite::outbox::hold(db, &mut lease.lock).await,
            Self::Postgres(db) => postgres::outbox::hold(db, &mut lease.session).await,
        }
    }

    /// At most `limit` messages that no broker has acknowledged, in order of their ids, those after `after`. Only for who
    /// has the lease.
    pub async fn unsent_messages(&self, after: Option<MessageId>, limit: u32) -> Result<Vec<Message>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::unsent(conn, after, limit)),
            Self::Postgres(db) => postgres::outbox::unsent(db, after, limit).await,
        }
    }

    /// How many messages no broker has acknowledged; counts no further than `up_to`.
    pub async fn count_unsent_messages(&self, up_to: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::count_unsent(conn, up_to)),
            Self::Postgres(db) => postgres::outbox::count_unsent(db, up_to).await,
        }
    }

    /// Notes that a broker has acknowledged these messages.
    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::outbox::mark_sent(batch, &messages, now)).await,
            Self::Postgres(db) => postgres::outbox::mark_sent(db, &messages, now).await,
        }
    }

    /// Deletes at most `limit` of the messages that were sent before `before`, oldest first; returns how many these were.
    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::outbox::delete_sent(batch, before, limit)).await,
            Self::Postgres(db) => postgres::outbox::delete_sent(db, before, limit).await,
        }
    }

    /// Passes the messages of the query to `each`, and stops at the first error it returns. No transaction is open
    /// during the calls.
    pub async fn export_messages(
        &self,
        query: &MessageQuery,
        each: &mut (dyn FnMut(MessageRecord) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        match self {
            Self::Sqlite(db) => sqlite::outbox::export(db, query, each).await,
            Self::Postgres(db) => postgres::outbox::export(db, query, each).await,
        }
    }

    pub async fn count_messages(&self, query: &MessageQuery) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::count(conn, query)),
            Self::Postgres(db) => postgres::outbox::count(db, query).await,
        }
    }
}
