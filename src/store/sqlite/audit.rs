//! The audit in SQLite.

use rusqlite::{Connection, Row};

use super::history::Effect;
use super::job::Atomicity;
use super::{Sqlite, rows};
use crate::domain::{Action, Actor, AuditEntry, AuditQuery, Timestamp};
use crate::store::audit::Values;
use crate::store::{Result, page_of};

const INSERT: &str = "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, created_at, action, actor, subject, client_address, request_id FROM audit ", $clauses)
    };
}

const LIST: &str = select!("WHERE id > ?1 AND created_at >= ?2 ORDER BY id LIMIT ?3");

const LIST_DESCENDING: &str = select!("WHERE id < ?1 AND created_at >= ?2 ORDER BY id DESC LIMIT ?3");

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
        Ok(page_of(self.read(|conn| rows::all(conn, sql, params, from_row))?, page.limit))
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

fn from_row(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.get(0)?,
        at: row.get(1)?,
        action: row.get(2)?,
        actor: row.get(3)?,
        subject: row.get(4)?,
        client_address: row.get(5)?,
        request_id: row.get(6)?,
    })
}
