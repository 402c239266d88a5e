//! The outbox: queued messages, sent messages, and the relay lease.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::query;
use crate::domain::{AccountId, Action, Actor, Message, MessageId, MessageQuery, Timestamp};
use crate::store::Result;
use crate::store::audit;
use crate::store::export::{self, Exported, MessageSink};
use crate::store::messages::{ADD_RETRIES, FIND_RETRIES, TAKE_RETRIES, retries};
use crate::store::postgres::database::Postgres;
use crate::store::postgres::rows;
use crate::store::postgres::rows::long_query;
use postgres_group_commit::{Connection, within};

/// Ordered by the columns of the index. The planner does not use the index without `sent_at`.
const UNSENT: &str = "SELECT id, account_id, message, created_at FROM messages
    WHERE sent_at IS NULL AND (account_id, id) > ($1, $2) ORDER BY sent_at, account_id, id LIMIT $3";

/// The clock of the process that accepted a message may differ.
const MARK_SENT: &str = "UPDATE messages SET sent_at = greatest($3, created_at)
    FROM unnest($1::bigint[], $2::uuid[]) AS sent (account_id, id)
    WHERE messages.account_id = sent.account_id AND messages.id = sent.id";

/// Joined by `ctid`, which is stable while the rows are locked. Joined by key, a generic plan would read the whole table.
const DELETE_SENT: &str = "DELETE FROM messages WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM messages WHERE sent_at < $1 ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1";

const COUNT_UNSENT: &str = "SELECT count(*) FROM (SELECT FROM messages WHERE sent_at IS NULL LIMIT $1) AS unsent";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[UNSENT, COUNT_UNSENT, MARK_SENT, DELETE_SENT, FIND_RETRIES, TAKE_RETRIES];

/// Advisory lock of the relay lease: the bytes of "messages".
const LOCK: i64 = i64::from_be_bytes(*b"messages");

/// The holder confirms its lease every few seconds. If it hangs or is cut off, the server ends its session and releases
/// the lock.
const SETTINGS: &str = "SET idle_session_timeout = '30s'";

/// The session that holds the relay lease, or tries to. The server releases the lease when its connection ends.
#[derive(Debug, Default)]
pub struct RelayLease(Option<Connection>);

impl Postgres {
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        let held = self.acquire(lease).await;
        if held.is_err()
            && let Some(lost) = lease.0.take()
        {
            lost.discard();
        }
        held
    }

    /// Takes the lock. A session that has the lock already takes it once more, which confirms that it is still alive.
    async fn acquire(&self, lease: &mut RelayLease) -> Result<bool> {
        let connection = match &mut lease.0 {
            Some(connection) => connection,
            none => {
                let connection = self.connect().await?;
                connection.client.batch_execute(SETTINGS).await?;
                none.insert(connection)
            }
        };
        let take = connection.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]);
        Ok(within(self.cluster.timeout(), take).await?.try_get(0)?)
    }

    pub async fn unsent_messages(&self, after: (AccountId, MessageId), limit: u32) -> Result<Vec<Message>> {
        let (account, id) = (after.0.0, Uuid::from_bytes(*after.1.as_bytes()));
        let rows = self.readers.query(UNSENT, &[&account, &id, &i64::from(limit)]).await?;
        rows::all(&rows)
    }

    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        let key = |(account, id): &(AccountId, MessageId)| (account.0, Uuid::from_bytes(*id.as_bytes()));
        let (accounts, ids): (Vec<_>, Vec<_>) = messages.iter().map(key).unzip();
        self.write(MARK_SENT, &[&accounts, &ids, &now.as_milliseconds()]).await.map(|_| ())
    }

    pub async fn retry_messages(&self, ids: Vec<MessageId>) -> Result<bool> {
        self.write_steps(async |client: &Client| {
            let are_waiting = are_waiting(client, &ids).await?;
            if are_waiting {
                client.execute(ADD_RETRIES, &[&retries(&ids)]).await?;
            }
            Ok(are_waiting)
        })
        .await
    }

    pub async fn take_retries(&self) -> Result<Option<String>> {
        if self.readers.query(FIND_RETRIES, &[]).await?.is_empty() {
            return Ok(None);
        }
        let taken = self.write(TAKE_RETRIES, &[]).await?;
        Ok(taken.first().map(|row| row.try_get(0)).transpose()?)
    }

    pub async fn discard_messages(&self, ids: Vec<MessageId>, actor: Actor) -> Result<bool> {
        self.write_steps(async |client: &Client| {
            if !are_waiting(client, &ids).await? {
                return Ok(false);
            }
            client.execute("DELETE FROM messages WHERE sent_at IS NULL AND id = ANY ($1)", &[&uuids(&ids)]).await?;
            for id in &ids {
                audit::postgres::record(client, &actor, Action::DiscardMessage, &id.to_string()).await?;
            }
            Ok(true)
        })
        .await
    }

    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&before.as_milliseconds(), &i64::from(limit)];
        Ok(self.write(DELETE_SENT, &parameters).await?.len() as u64)
    }

    pub async fn count_unsent_messages(&self, up_to: u32) -> Result<u64> {
        let rows = self.readers.query(COUNT_UNSENT, &[&i64::from(up_to)]).await?;
        rows::count(rows::only(&rows)?)
    }

    pub async fn export_messages(&self, query: &MessageQuery, each: MessageSink<'_>) -> Exported {
        let connection = self.connect().await?;
        let sql = query::select(query, "m.sent_at");
        let page = async |(account, id): query::Key| {
            let rows = long_query(&connection, &sql, &[&account, &Uuid::from_bytes(id)]).await?;
            rows::all(&rows)
        };
        export::in_pages(query::page_size(query), query::first(query), page, query::key, each).await
    }

    pub async fn count_messages(&self, query: &MessageQuery) -> Result<u64> {
        rows::count(rows::only(&self.count(query::count(query)).await?)?)
    }
}

/// Locks the messages, so that the relay marks none of them as sent meanwhile.
async fn are_waiting(client: &Client, ids: &[MessageId]) -> std::result::Result<bool, tokio_postgres::Error> {
    let lock = "SELECT FROM messages WHERE sent_at IS NULL AND id = ANY ($1) FOR UPDATE";
    Ok(client.query(lock, &[&uuids(ids)]).await?.len() == ids.len())
}

fn uuids(ids: &[MessageId]) -> Vec<Uuid> {
    ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect()
}
