//! The audit. The store writes its rows, each in the transaction of the change: every method that makes an audited change
//! takes the [`Actor`].

use std::convert::Infallible;
use std::path::Path;

use super::statement::{Sql, both};
use super::transaction::Transaction;
use super::{Result, Store, page_of};
use crate::domain::{AccountId, Actor, AuditEntry, AuditFilter, Email, PageLimit, PageQuery, Timestamp};

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, created_at, action, actor, subject, client_address, request_id FROM audit ", $clauses)
    };
}

const LIST: Sql = both(select!("WHERE id > $1 AND created_at >= $2 ORDER BY id LIMIT $3"));

const LIST_DESCENDING: Sql = both(select!("WHERE id < $1 AND created_at >= $2 ORDER BY id DESC LIMIT $3"));

from_row!(AuditEntry { id, at, action, actor, subject, client_address, request_id });

/// Names a file or folder. Control characters would change the output of a terminal.
pub fn of_path(path: &Path) -> String {
    path.display().to_string().replace(char::is_control, "\u{fffd}")
}

/// Returns the network address of the author, as it is stored.
pub fn client_address(actor: &Actor) -> Option<String> {
    actor.client_address.map(|address| address.to_canonical().to_string())
}

const DELETE_OLD: Sql = Sql {
    sqlite: "DELETE FROM audit WHERE id IN (
        SELECT id FROM audit WHERE created_at < $1 ORDER BY created_at LIMIT $2) RETURNING id",
    // Skips rows that another process is deleting.
    postgres: "DELETE FROM audit WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM audit WHERE created_at < $1 ORDER BY created_at LIMIT $2
        FOR UPDATE SKIP LOCKED)) RETURNING id",
};

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] = &[LIST, LIST_DESCENDING, DELETE_OLD];

/// The subject with the address `$1` as `$2`. In a subject, an address is a word, perhaps the last before a colon.
macro_rules! renamed {
    () => {
        "trim(replace(replace(' ' || subject || ' ', ' ' || $1 || ' ', ' ' || $2 || ' '), ' ' || $1 || ': ', ' ' || $2 || ': '))"
    };
}

/// Replaces the address `$1` by the pseudonym `$2`. Removes the other address of a changed one, the names of keys, which their
/// owner has chosen, and the network addresses of requests. The name of a key follows the first colon, so an address after
/// that is part of a name.
macro_rules! erase {
    ($position:literal) => {
        concat!(
            "UPDATE audit SET actor = CASE actor WHEN $1 THEN $2 ELSE actor END,
                client_address = CASE actor WHEN $1 THEN NULL ELSE client_address END,
                subject = CASE
                    WHEN action = 'account.set_email' AND ",
            $position,
            "(subject || ' ', ' to ' || $1 || ' ') > 0 THEN $2
                    WHEN action LIKE 'key.%' AND ",
            $position,
            "(subject, ' of ' || $1 || ': ') BETWEEN 1 AND ",
            $position,
            "(subject, ': ')
                        THEN substr(subject, 1, ",
            $position,
            "(subject, ': ') - length($1) - 1) || $2
                    ELSE ",
            renamed!(),
            " END
            WHERE actor = $1 OR ",
            $position,
            "(subject, $1) > 0"
        )
    };
}

const ERASE: Sql = Sql { sqlite: erase!("instr"), postgres: erase!("strpos") };

/// Gives an account another address. Rows from before it was created are of a deleted account, as are deletions and later
/// creations. Other rows of a later account that had the address cannot be told apart. Earlier versions dated an account up to
/// some milliseconds before its row in the audit.
pub(super) async fn rename(tx: &impl Transaction, account: AccountId, from: &Email, to: &Email) -> Result<()> {
    let rename = both(concat!(
        "UPDATE audit SET actor = CASE actor WHEN $1 THEN $2 ELSE actor END, subject = ",
        renamed!(),
        " WHERE (actor = $1 OR replace(subject, $1, '') <> subject) AND id >= (SELECT coalesce(max(id), 0) FROM audit
            WHERE action = 'account.create' AND subject IN ($1 || ' (customer)', $1 || ' (staff)')
                AND created_at <= (SELECT created_at + 500 FROM accounts WHERE id = $3))
            AND NOT (action = 'account.delete' AND subject = $1)
            AND NOT (action = 'account.create' AND created_at > (SELECT created_at + 500 FROM accounts WHERE id = $3))"
    ));
    tx.execute(rename, &[from, to, &account]).await.map(drop)
}

/// Replaces the addresses of an account by its pseudonym, in one pass over all rows.
pub(super) async fn erase(tx: &impl Transaction, account: AccountId, email: &Email) -> Result<()> {
    tx.execute(ERASE, &[email, &account.pseudonym()]).await.map(drop)
}

impl Store {
    /// Returns a page of the rows that `of` selects, and whether more follow. Reads all rows until the page is full,
    /// because addresses of accounts are compared in Unicode forms that the databases lack.
    pub async fn list_audit(&self, of: &AuditFilter, page: PageQuery<Infallible>) -> Result<(Vec<AuditEntry>, bool)> {
        let (mut next, mut found) = (page, Vec::new());
        let (sql, length) = (page.direction.choose(LIST, LIST_DESCENDING), PageLimit::LONGEST.get());
        loop {
            let entries: Vec<AuditEntry> = self.all(sql, &[&next.start(), &of.since, &length]).await?;
            let more = entries.len() as i64 == length;
            next.after = entries.last().map(|last| last.id);
            found.extend(entries.into_iter().filter(|entry| of.selects(entry)));
            if !more || found.len() > page.limit.get() as usize {
                return Ok(page_of(found, page.limit));
            }
            // SQLite reads on this thread, which has other requests to answer.
            tokio::task::yield_now().await;
        }
    }

    /// Deletes at most `limit` of the rows that are older than `before`, oldest first. Returns the number deleted.
    pub async fn delete_old_audit(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.delete(DELETE_OLD, before, limit).await
    }
}
