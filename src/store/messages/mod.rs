//! Messages and the outbox.

pub(super) mod postgres;
pub(super) mod postgres_lease;
mod query;
mod sqlite;
pub(super) mod sqlite_lease;

use std::fs::File;

use postgres_group_commit::Connection;

use super::export::{self, Exported, MessageSink};
use super::row::{FromRow, Row};
use super::sqlite::{Atomicity, Effect, WriteConnection, rows};
use super::statement::{Sql, both};
use super::transaction::Transaction;
use super::{Outcome, Result, Store, WriteKey};
use crate::domain::{
    AccountId, Action, Actor, Direction, Email, Message, MessageId, MessageQuery, MessageRecord, PageLimit, Timestamp,
    TrackedMessage,
};

/// Lease that makes this process the relay. Released on drop.
#[derive(Debug, Default)]
pub struct RelayLease {
    /// Its file, in SQLite.
    lock: Option<File>,
    /// The session that holds it or tries to, in PostgreSQL. The server releases the lease when its connection ends.
    session: Option<Connection>,
}

/// Size of texts after which a page of messages ends, so that a slow client keeps little in memory: a hundred of the longest
/// messages take 4 MB.
const PAGE_BYTES: usize = 256 * 1024;

/// Ordered by the columns of the index. The planner of PostgreSQL does not use the index without `sent_at`.
const UNSENT: Sql = both(
    "SELECT id, account_id, message, created_at FROM messages
    WHERE sent_at IS NULL AND (account_id, id) > ($1, $2) ORDER BY sent_at, account_id, id LIMIT $3",
);

const COUNT_UNSENT: Sql =
    both("SELECT count(*) FROM (SELECT 1 FROM messages WHERE sent_at IS NULL LIMIT $1) AS unsent");

/// The row of `meta` with the messages to retry and their accounts, which the relay has not taken yet.
const FIND_RETRIES: Sql = both("SELECT value FROM meta WHERE key = 'retries'");
const TAKE_RETRIES: Sql = both("DELETE FROM meta WHERE key = 'retries' RETURNING value");

/// Locks a message, so that the relay does not mark it as sent meanwhile.
const FIND_WAITING: Sql = locking!("SELECT account_id FROM messages WHERE sent_at IS NULL AND id = $1", "FOR UPDATE");

const LIST_OF: Sql = Sql { sqlite: sqlite::LIST_OF, postgres: postgres::LIST_OF };

const LIST_OF_DESCENDING: Sql = Sql { sqlite: sqlite::LIST_OF_DESCENDING, postgres: postgres::LIST_OF_DESCENDING };

const DELETE_SENT: Sql = Sql {
    // Only finds the messages.
    sqlite: "SELECT account_id, id FROM messages WHERE sent_at < ?1 ORDER BY sent_at LIMIT ?2",
    // Joined by `ctid`, which is stable while the rows are locked. Joined by key, a generic plan would read the whole table.
    postgres: "DELETE FROM messages WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM messages WHERE sent_at < $1 ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING id",
};

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] =
    &[LIST_OF, LIST_OF_DESCENDING, UNSENT, COUNT_UNSENT, FIND_RETRIES, TAKE_RETRIES, DELETE_SENT];

/// Reads a page of messages, at most [`PAGE_BYTES`] and one message. Returns whether more rows follow.
pub(super) fn page<E>(
    rows: impl Iterator<Item = Result<TrackedMessage, E>>,
    limit: PageLimit,
) -> Result<(Vec<TrackedMessage>, bool), E> {
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
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        Ok((Message::from_row(row)?, row.column(4)?))
    }
}

impl FromRow for MessageRecord {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        Ok(Self { message: Message::from_row(row)?, sent_at: row.column(4)?, account: row.column(5)? })
    }
}

transactions! { Savepoint, Unlisted:
    /// Tells the relay to try waiting messages now, or all if `ids` is empty. Returns false, and changes nothing, if one of
    /// them is not waiting.
    async fn retry_messages(ids: Vec<MessageId>) -> Result<bool>;

    /// Deletes waiting messages. Returns false, and changes nothing, if one of them is not waiting.
    async fn discard_messages(ids: Vec<MessageId>, actor: Actor) -> Result<bool>;
}

async fn retry_messages(tx: &impl Transaction, ids: Vec<MessageId>) -> Result<bool> {
    let Some(accounts) = waiting_accounts(tx, &ids).await? else { return Ok(false) };
    let add = both(
        "INSERT INTO meta AS kept (key, value) VALUES ('retries', $1)
        ON CONFLICT (key) DO UPDATE SET value = kept.value || ' ' || $1",
    );
    let retries: Vec<_> = ids.iter().zip(accounts).map(|(id, account)| format!("{id} {}", account.0)).collect();
    let retries = if ids.is_empty() { "all".into() } else { retries.join(" ") };
    tx.execute(add, &[&retries]).await?;
    Ok(true)
}

async fn discard_messages(tx: &impl Transaction, ids: Vec<MessageId>, actor: Actor) -> Result<bool> {
    if waiting_accounts(tx, &ids).await?.is_none() {
        return Ok(false);
    }
    let discard = both(
        "DELETE FROM messages WHERE sent_at IS NULL AND id = $1
        RETURNING (SELECT email FROM accounts WHERE accounts.id = account_id)",
    );
    for id in &ids {
        if let Some((email,)) = tx.first::<(Email,)>(discard, &[id]).await? {
            tx.record(&actor, Action::DiscardMessage, &format!("{id} of {}", email.as_str())).await?;
        }
    }
    Ok(true)
}

/// Returns the accounts of messages, in their order. `None` if one of them is not waiting.
async fn waiting_accounts(tx: &impl Transaction, ids: &[MessageId]) -> Result<Option<Vec<AccountId>>> {
    let mut accounts = Vec::new();
    for id in ids {
        let Some((account,)) = tx.first(FIND_WAITING, &[id]).await? else { return Ok(None) };
        accounts.push(account);
    }
    Ok(Some(accounts))
}

impl Store {
    /// Queues a message; durable once this returns.
    pub async fn create_message(&self, message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>> {
        match self {
            Self::Sqlite(db) => db.create(message, key).await,
            Self::Postgres(db) => Box::pin(db.messages.submit(message, key)).await,
        }
    }

    /// Returns at most `limit` of an account's messages that follow `after` in the direction of their ids, and whether more
    /// follow. Each message has the time at which it was acknowledged, or `None` while it is queued.
    ///
    /// An id begins with the time at which a process received the message. Messages sent at the same time may become visible
    /// in another order. The difference is at most the duration of a write plus the difference of the processes' clocks.
    pub async fn list_messages_of(
        &self,
        account: AccountId,
        direction: Direction,
        after: Option<MessageId>,
        limit: PageLimit,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        let after = after.unwrap_or(direction.choose(MessageId::MIN, MessageId::MAX));
        let (sql, one_more) = (direction.choose(LIST_OF, LIST_OF_DESCENDING).of(self), limit.get() + 1);
        match self {
            Self::Sqlite(db) => db.read(|conn| {
                let params = (account.0, after.as_bytes(), one_more);
                Ok(page(conn.prepare_cached(sql)?.query_map(params, |row| TrackedMessage::from_row(row))?, limit)?)
            }),
            Self::Postgres(db) => {
                let rows = Box::pin(db.readers.query(sql, &[&account, &after, &one_more])).await?;
                Ok(page(rows.iter().map(TrackedMessage::from_row), limit)?)
            }
        }
    }

    /// Records that the web server has acknowledged these messages. The clock of the process that accepted a message may
    /// differ.
    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        match self {
            Self::Sqlite(db) => {
                let mark = "UPDATE messages SET sent_at = max(?1, created_at) WHERE account_id = ?2 AND id = ?3";
                let write = move |conn: &WriteConnection<'_>| {
                    for (account, id) in &messages {
                        conn.execute(mark, (now.as_milliseconds(), account.0, id.as_bytes()))?;
                    }
                    Ok(())
                };
                db.submit(Atomicity::Batch, Effect::Unlisted, write).await
            }
            Self::Postgres(db) => {
                let (accounts, ids): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
                Box::pin(db.single.write(postgres::MARK_SENT, &[&accounts, &ids, &now])).await?;
                Ok(())
            }
        }
    }

    /// Deletes at most `limit` of the messages sent before `before`, oldest first. Returns the number deleted.
    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let Self::Sqlite(db) = self else { return self.delete(DELETE_SENT, before, limit).await };
        db.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            // One by one: for a pair `IN` a subquery, SQLite would read all messages of an account.
            let keys: Vec<(i64, MessageId)> = rows::all(conn, DELETE_SENT.sqlite, (before, limit))?;
            for (account, id) in &keys {
                conn.execute("DELETE FROM messages WHERE account_id = ?1 AND id = ?2", (account, id))?;
            }
            Ok(keys.len() as u64)
        })
        .await
    }

    /// Returns at most `limit` messages after `after` that are not acknowledged, in order of their accounts and ids.
    /// Requires the relay lease.
    pub async fn unsent_messages(&self, after: (AccountId, MessageId), limit: u32) -> Result<Vec<Message>> {
        self.all(UNSENT, &[&after.0, &after.1, &i64::from(limit)]).await
    }

    /// Counts the messages that are not acknowledged, up to `up_to`.
    pub async fn count_unsent_messages(&self, up_to: u32) -> Result<u64> {
        let counted: Option<(i64,)> = self.first(COUNT_UNSENT, &[&i64::from(up_to)]).await?;
        Ok(counted.map_or(0, |(count,)| count.unsigned_abs()))
    }

    /// Passes the messages of the query to `each`, and stops at the first error it returns. No transaction is open
    /// during the calls.
    pub async fn export_messages(&self, query: &MessageQuery, each: MessageSink<'_>) -> Exported {
        let (reader, sql) = (self.page_reader().await?, query::select(query, matches!(self, Self::Sqlite(_))));
        // The newest are a single page.
        let size = if query.newest.is_some() { usize::MAX } else { export::MESSAGES };
        let first = (query.account.unwrap_or(AccountId(0)), MessageId::MIN);
        let page = async |(account, id): (AccountId, MessageId)| reader.all(&sql, &[&account, &id]).await;
        let key = |record: &MessageRecord| (record.message.account, record.message.id);
        export::in_pages(size, first, page, key, each).await
    }

    pub async fn count_messages(&self, query: &MessageQuery) -> Result<u64> {
        let counted: Vec<(i64,)> = self.all_long(query::count(query)).await?;
        Ok(counted.iter().map(|(count,)| count.unsigned_abs()).sum())
    }

    /// Takes what [`Self::retry_messages`] left: ids and accounts, or `all`, separated by spaces. `None` if there is nothing.
    pub async fn take_retries(&self) -> Result<Option<String>> {
        if self.first::<()>(FIND_RETRIES, &[]).await?.is_none() {
            return Ok(None);
        }
        Ok(self.write(TAKE_RETRIES, &[]).await?.pop().map(|(ids,)| ids))
    }

    /// Acquires the relay lease or confirms it. Returns `false` if another process holds it.
    ///
    /// The holder confirms its lease every few seconds. The first call on a database creates an index of the messages.
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.hold_relay_lease(&mut lease.lock).await,
            Self::Postgres(db) => db.hold_relay_lease(&mut lease.session).await,
        }
    }
}
