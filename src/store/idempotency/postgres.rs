//! Expiry of responses stored under idempotency keys. `store/postgres/keyed.rs` stores them.

use tokio_postgres::types::ToSql;

use crate::domain::Timestamp;
use crate::store::Result;
use crate::store::postgres::database::Postgres;

/// Skips rows that another process is deleting. Selects by `ctid`, which does not change while a row is locked. A generic
/// plan that joins by key may read the whole table.
const DELETE_EXPIRED: &str = "DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency_records WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
        FOR UPDATE SKIP LOCKED)) RETURNING 1";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[DELETE_EXPIRED];

impl Postgres {
    /// Deletes at most `limit` of the responses that have expired by `now`, oldest first. Returns the number deleted.
    pub async fn delete_expired_responses(&self, now: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&now.as_milliseconds(), &i64::from(limit)];
        Ok(self.write(DELETE_EXPIRED, &parameters).await?.len() as u64)
    }
}
