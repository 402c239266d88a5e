//! The audit. The store writes its rows, each in the transaction of the change: every method that makes an audited change
//! takes the [`Actor`].

use std::path::Path;

use super::{Result, Store};
use crate::domain::{Action, Actor, AuditEntry, AuditQuery, Timestamp};

pub const INSERT: &str = "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
    VALUES ($1, $2, $3, $4, $5, $6)";

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, created_at, action, actor, subject, client_address, request_id FROM audit ", $clauses)
    };
}

pub(super) mod postgres;
pub(super) mod sqlite;

pub const LIST: &str = select!("WHERE id > $1 AND created_at >= $2 ORDER BY id LIMIT $3");

pub const LIST_DESCENDING: &str = select!("WHERE id < $1 AND created_at >= $2 ORDER BY id DESC LIMIT $3");

/// The columns of a new row, except its subject.
pub struct Values<'a> {
    pub at: i64,
    pub action: &'static str,
    pub actor: &'a str,
    pub client_address: Option<String>,
    pub request_id: Option<&'a str>,
}

impl<'a> Values<'a> {
    pub fn of(actor: &'a Actor, action: Action) -> Self {
        Self {
            at: actor.at.as_milliseconds(),
            action: action.as_str(),
            actor: actor.name(),
            client_address: actor.client_address.map(|address| address.to_canonical().to_string()),
            request_id: actor.request_id.as_deref(),
        }
    }
}

from_row!(AuditEntry { id, at, action, actor, subject, client_address, request_id });

/// Names a file or folder. Control characters would change the output of a terminal.
pub fn of_path(path: &Path) -> String {
    path.display().to_string().replace(char::is_control, "\u{fffd}")
}

methods! {
    /// Returns a page of the audit, in the direction of the query, and whether more follow.
    async fn list_audit(query: &AuditQuery) -> Result<(Vec<AuditEntry>, bool)>;

    /// Deletes at most `limit` of the rows that are older than `before`, oldest first. Returns the number deleted.
    async fn delete_old_audit(before: Timestamp, limit: u32) -> Result<u64>;
}
