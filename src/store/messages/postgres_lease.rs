//! The lease of the process that relays messages, in PostgreSQL.

use crate::store::Result;
use crate::store::postgres::database::Postgres;
use postgres_group_commit::{Connection, within};

/// Advisory locks belong to the whole database, which may have stores in several schemas.
const LOCK: &str = "SELECT pg_try_advisory_lock('messages'::regclass::int, 0)";

/// The holder confirms its lease every few seconds. If it hangs or is cut off, the server ends its session and releases
/// the lock.
const SETTINGS: &str = "SET idle_session_timeout = '30s'";

impl Postgres {
    pub async fn hold_relay_lease(&self, session: &mut Option<Connection>) -> Result<bool> {
        self.acquire(session).await.inspect_err(|_| session.take().iter().for_each(Connection::discard))
    }

    /// Takes the lock. A session that has the lock already takes it once more, which confirms that it is still alive.
    async fn acquire(&self, session: &mut Option<Connection>) -> Result<bool> {
        let connection = match session {
            Some(connection) => connection,
            none => {
                let connection = self.cluster.connection().await?;
                connection.client.batch_execute(SETTINGS).await?;
                none.insert(connection)
            }
        };
        Ok(within(self.cluster.timeout(), connection.client.query_one(LOCK, &[])).await?.try_get(0)?)
    }
}
