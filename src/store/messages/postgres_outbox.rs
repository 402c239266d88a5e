//! The outbox: queued messages, sent messages, and the relay lease.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::domain::{AccountId, MessageId, Timestamp};
use crate::store::Result;
use crate::store::postgres::database::Postgres;
use postgres_group_commit::{Connection, within};

/// The clock of the process that accepted a message may differ.
const MARK_SENT: &str = "UPDATE messages SET sent_at = greatest($3, created_at)
    FROM unnest($1::bigint[], $2::uuid[]) AS sent (account_id, id)
    WHERE messages.account_id = sent.account_id AND messages.id = sent.id";

/// Joined by `ctid`, which is stable while the rows are locked. Joined by key, a generic plan would read the whole table.
const DELETE_SENT: &str = "DELETE FROM messages WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM messages WHERE sent_at < $1 ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[MARK_SENT, DELETE_SENT];

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

    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        let key = |(account, id): &(AccountId, MessageId)| (account.0, Uuid::from_bytes(*id.as_bytes()));
        let (accounts, ids): (Vec<_>, Vec<_>) = messages.iter().map(key).unzip();
        self.single.write(MARK_SENT, &[&accounts, &ids, &now.as_milliseconds()]).await?;
        Ok(())
    }

    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&before.as_milliseconds(), &i64::from(limit)];
        Ok(self.single.write(DELETE_SENT, &parameters).await?.len() as u64)
    }
}
