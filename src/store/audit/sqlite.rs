//! The audit in SQLite.

use rusqlite::Connection;

use crate::domain::{Action, Actor, AuditEntry, AuditQuery, Timestamp};
use crate::store::audit::{INSERT, LIST, LIST_DESCENDING, Values};
use crate::store::sqlite::{Atomicity, Effect, Sqlite, rows};
use crate::store::{Result, page_of};

/// Writes the row of a change, in the transaction of the change.
pub fn record(conn: &Connection, actor: &Actor, action: Action, subject: &str) -> Result<()> {
    let Values { at, action, actor, client_address, request_id } = Values::of(actor, action);
    conn.prepare_cached(INSERT)?.execute((at, action, actor, subject, client_address, request_id))?;
    Ok(())
}

impl Sqlite {
    pub async fn list_audit(&self, query: &AuditQuery) -> Result<(Vec<AuditEntry>, bool)> {
        let AuditQuery { page, since } = query;
        let sql = page.direction.choose(LIST, LIST_DESCENDING);
        let params = (page.start(), since.as_milliseconds(), page.limit.get() + 1);
        Ok(page_of(self.read(|conn| rows::all(conn, sql, params, rows::read))?, page.limit))
    }

    pub async fn delete_old_audit(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.submit(Atomicity::Statement, Effect::Unlisted, move |conn| {
            let delete = "DELETE FROM audit WHERE id IN (
                SELECT id FROM audit WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)";
            Ok(conn.execute(delete, (before.as_milliseconds(), limit))? as u64)
        })
        .await
    }
}
