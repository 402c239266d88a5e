//! Resetting a store in PostgreSQL.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::domain::{Action, Actor};
use crate::store::pets::postgres::{self as pets, INSERT_ADDED};
use crate::store::postgres::database::Postgres;
use crate::store::postgres::of_commit;
use crate::store::transaction::Transaction;
use crate::store::{PetSource, Result, StoreError};

/// Sent at once, so that a process that hangs does not keep its locks.
///
/// All other statements wait behind a waiting `TRUNCATE`. With the timeout, a dump or an import delays this process and not
/// the service. It also ends a deadlock: a transition locks orders before animals, a new order animals before orders. Stored
/// responses are locked first, as by writes with a key.
///
/// Each statement of a service takes its snapshot after its locks. A read that waited therefore sees the new animals, and
/// none sees the empty table. `retries` ends the pauses of the relay.
fn reset_and_commit() -> String {
    format!(
        "SAVEPOINT unlocked; SET LOCAL lock_timeout = '250ms';
        TRUNCATE idempotency_records, orders, pets, messages RESTART IDENTITY;
        {INSERT_ADDED};
        INSERT INTO meta AS kept (key, value) VALUES ('resets', '1')
            ON CONFLICT (key) DO UPDATE SET value = (kept.value::bigint + 1)::text;
        INSERT INTO meta (key, value) VALUES ('retries', 'all') ON CONFLICT (key) DO UPDATE SET value = 'all';
        COMMIT"
    )
}

/// Limit of the attempts to lock the tables, and the pause between two attempts. The pause lets waiting requests proceed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

const IN_USE: &str = "the tables were in use for 30 s, for instance by an import or a dump, and nothing was changed: \
    try again when it has ended";

/// Returns the owner of the tables unless the current role has its privileges. Only the owner can restart ids.
pub const OTHER_OWNER: &str = "SELECT pg_get_userbyid(relowner)::text, current_user::text FROM pg_class
    WHERE oid IN ('idempotency_records'::regclass, 'orders'::regclass, 'pets'::regclass, 'messages'::regclass)
        AND NOT pg_has_role(relowner, 'USAGE') LIMIT 1";

impl Postgres {
    /// If it fails, the connection is dropped and the transaction with it.
    pub async fn reset(&self, animals: PetSource, actor: Actor, is_interrupted: fn() -> bool) -> Result<u64> {
        self.require_owner().await?;
        let connection = self.cluster.connection().await?;
        let (client, warnings) = (&connection.client, connection.warnings());
        let added = pets::begin_added(client, animals).await?;
        client.record(&actor, Action::ResetStore, self.deployment.as_str()).await?;
        replace_and_commit(client, is_interrupted).await?;
        connection.not_warned_since(warnings)?;
        Ok(added)
    }

    pub async fn require_owner(&self) -> Result<()> {
        let rows = self.readers.query(OTHER_OWNER, &[]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (owner, role): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        Err(StoreError::Refused(format!(
            "the role {role} does not own the tables: run `petstore reset` with the role {owner}"
        )))
    }
}

async fn replace_and_commit(client: &Client, is_interrupted: fn() -> bool) -> Result<()> {
    let (reset, until) = (reset_and_commit(), Instant::now() + LOCK_TIMEOUT);
    while let Err(error) = client.batch_execute(&reset).await {
        if !matches!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED)) {
            return Err(of_commit(error, "the store may have been reset, look at it"));
        }
        if is_interrupted() {
            return Err(StoreError::Refused("interrupted".into()));
        }
        if Instant::now() >= until {
            return Err(StoreError::Unavailable(IN_USE.into()));
        }
        client.batch_execute("ROLLBACK TO unlocked; RELEASE unlocked").await?;
        sleep(PAUSE).await;
    }
    Ok(())
}
