//! The audit. Single statements insert its rows themselves, and transactions call [`record`].

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

use crate::domain::{Action, Actor, AuditEntry, AuditQuery, Timestamp};
use crate::store::audit::{INSERT, LIST, LIST_DESCENDING, Values};
use crate::store::postgres::database::Postgres;
use crate::store::postgres::rows;
use crate::store::{Result, page_of};

/// Skips rows that another process is deleting.
const DELETE_OLD: &str = "DELETE FROM audit WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM audit WHERE created_at < $1 ORDER BY created_at LIMIT $2
        FOR UPDATE SKIP LOCKED)) RETURNING 1";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[LIST, LIST_DESCENDING, DELETE_OLD];

/// Writes the row of a change, in the transaction of the change.
pub async fn record(client: &Client, actor: &Actor, action: Action, subject: &str) -> std::result::Result<(), Error> {
    let Values { at, action, actor, client_address, request_id } = Values::of(actor, action);
    let parameters: [&(dyn ToSql + Sync); 6] = [&at, &action, &actor, &subject, &client_address, &request_id];
    client.execute(INSERT, &parameters).await.map(|_| ())
}

impl Postgres {
    pub async fn list_audit(&self, query: &AuditQuery) -> Result<(Vec<AuditEntry>, bool)> {
        let AuditQuery { page, since } = query;
        let sql = page.direction.choose(LIST, LIST_DESCENDING);
        let (start, one_more) = (page.start(), page.limit.get() + 1);
        let rows = self.readers.query(sql, &[&start, &since.as_milliseconds(), &one_more]).await?;
        Ok(page_of(rows::all(&rows)?, page.limit))
    }

    pub async fn delete_old_audit(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&before.as_milliseconds(), &i64::from(limit)];
        Ok(self.write(DELETE_OLD, &parameters).await?.len() as u64)
    }
}
