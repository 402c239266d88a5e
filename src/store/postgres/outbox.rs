//! The outbox: queued messages, sent messages, and the relay lease.

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::Connection;
use super::error::timed_out;
use super::rows::long_query;
use super::{OPERATION_TIMEOUT, Postgres, messages};
use crate::domain::{AccountId, Email, Message, MessageId, MessageQuery, MessageRecord, Timestamp};
use crate::store::{Result, StoreError, export, message_query};

/// Ordered by the columns of the index. The planner does not use the index for `id` alone.
const UNSENT: &str = "SELECT id, account_id, message, created_at FROM messages
    WHERE sent_at IS NULL AND id > $1 ORDER BY sent_at, id LIMIT $2";

const MARK_SENT: &str = "UPDATE messages SET sent_at = $3
    FROM unnest($1::bigint[], $2::uuid[]) AS sent (account_id, id)
    WHERE messages.account_id = sent.account_id AND messages.id = sent.id";

/// Joined by `ctid`, which is stable while the rows are locked. Joined by key, a generic plan would read the whole table.
const DELETE_SENT: &str = "DELETE FROM messages WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM messages WHERE sent_at < $1 ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1";

const COUNT_UNSENT: &str = "SELECT count(*) FROM (SELECT FROM messages WHERE sent_at IS NULL LIMIT $1) AS unsent";

/// Statements prepared on connections for reads.
pub const READS: &[&str] = &[UNSENT, COUNT_UNSENT];

/// Statements prepared on the connection for single writes.
pub const WRITES: &[&str] = &[MARK_SENT, DELETE_SENT];

/// Advisory lock of the relay lease: the bytes of "messages".
const LOCK: i64 = i64::from_be_bytes(*b"messages");

/// The holder confirms its lease every few seconds. If it hangs or is cut off, the server ends its session and releases
/// the lock.
const SETTINGS: &str = "SET idle_session_timeout = '30s'";

/// The relay lease. The server releases it when its connection ends.
#[derive(Debug, Default)]
pub struct RelayLease(Option<LeaseConnection>);

#[derive(Debug)]
struct LeaseConnection {
    connection: Connection,
    held: bool,
}

impl Postgres {
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        let held = self.acquire(lease).await;
        if held.is_err()
            && let Some(lost) = lease.0.take()
        {
            lost.connection.discard();
        }
        held
    }

    async fn acquire(&self, lease: &mut RelayLease) -> Result<bool> {
        if lease.0.is_none() {
            let connection = self.connect().await?;
            connection.client.batch_execute(SETTINGS).await?;
            lease.0 = Some(LeaseConnection { connection, held: false });
        }
        let Some(LeaseConnection { connection, held }) = &mut lease.0 else { return Ok(false) };
        let ask = if *held { "SELECT $1::bigint > 0" } else { "SELECT pg_try_advisory_lock($1)" };
        let answer = timeout(OPERATION_TIMEOUT, connection.client.query_one(ask, &[&LOCK])).await;
        *held = answer.map_err(|_| timed_out(OPERATION_TIMEOUT))??.try_get(0)?;
        Ok(*held)
    }

    pub async fn unsent_messages(&self, after: Option<MessageId>, limit: u32) -> Result<Vec<Message>> {
        let after = after.map_or(Uuid::nil(), |id| Uuid::from_bytes(*id.as_bytes()));
        let rows = self.readers.query(UNSENT, &[&after, &i64::from(limit)]).await?;
        rows.iter().map(messages::from_row).collect()
    }

    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        let accounts: Vec<_> = messages.iter().map(|(account, _)| account.0).collect();
        let ids: Vec<_> = messages.iter().map(|(_, id)| Uuid::from_bytes(*id.as_bytes())).collect();
        self.write(MARK_SENT, &[&accounts, &ids, &now.as_milliseconds()]).await.map(|_| ())
    }

    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&before.as_milliseconds(), &i64::from(limit)];
        Ok(self.write(DELETE_SENT, &parameters).await?.len() as u64)
    }

    pub async fn count_unsent_messages(&self, up_to: u32) -> Result<u64> {
        let rows = self.readers.query(COUNT_UNSENT, &[&i64::from(up_to)]).await?;
        number(rows.first())
    }

    pub async fn export_messages(
        &self,
        query: &MessageQuery,
        each: &mut (dyn FnMut(MessageRecord) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        let connection = self.connect().await?;
        let sql = message_query::select(query, "m.sent_at");
        let page = async |(account, id): message_query::Key| {
            let rows = long_query(&connection, &sql, &[&account, &Uuid::from_bytes(id)]).await?;
            rows.iter().map(record).collect()
        };
        export::in_pages(message_query::page_size(query), message_query::first(query), page, message_query::key, each)
            .await
    }

    pub async fn count_messages(&self, query: &MessageQuery) -> Result<u64> {
        let connection = self.connect().await?;
        number(connection.client.query_opt(&message_query::count(query), &[]).await?.as_ref())
    }
}

fn record(row: &Row) -> Result<MessageRecord> {
    let email: &str = row.try_get(5)?;
    Ok(MessageRecord {
        message: messages::from_row(row)?,
        account: Email::parse(email).map_err(|invalid| StoreError::Failed(format!("{email:?} {invalid}")))?,
        sent_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp::from_milliseconds),
    })
}

fn number(row: Option<&Row>) -> Result<u64> {
    let row = row.ok_or_else(|| StoreError::Failed("a count has no row".into()))?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}
