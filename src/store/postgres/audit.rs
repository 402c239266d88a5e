//! The audit. Single statements insert its rows themselves, and transactions call [`record`].

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::database::Postgres;
use crate::domain::{Action, Actor, AuditEntry, AuditQuery, Timestamp};
use crate::store::audit::Values;
use crate::store::{Result, page_of};

const INSERT: &str = "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
    VALUES ($1, $2, $3, $4, $5, $6)";

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, created_at, action, actor, subject, client_address, request_id FROM audit ", $clauses)
    };
}

const LIST: &str = select!("WHERE id > $1 AND created_at >= $2 ORDER BY id LIMIT $3");

const LIST_DESCENDING: &str = select!("WHERE id < $1 AND created_at >= $2 ORDER BY id DESC LIMIT $3");

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
        Ok(page_of(rows.iter().map(from_row).collect::<Result<_>>()?, page.limit))
    }

    pub async fn delete_old_audit(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&before.as_milliseconds(), &i64::from(limit)];
        Ok(self.write(DELETE_OLD, &parameters).await?.len() as u64)
    }
}

fn from_row(row: &Row) -> Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.try_get(0)?,
        at: row.try_get(1)?,
        action: row.try_get(2)?,
        actor: row.try_get(3)?,
        subject: row.try_get(4)?,
        client_address: row.try_get(5)?,
        request_id: row.try_get(6)?,
    })
}
