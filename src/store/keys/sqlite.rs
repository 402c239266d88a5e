//! API keys in SQLite. Every change increments `keys_version`, which other processes poll.

use rusqlite::{Connection, Params};

use crate::domain::api_key::{KeyGrant, KeyQuery, KeyState, NewKey, Rotation};
use crate::domain::{AccountId, Action, Actor, Email, KeyHash, KeyId, KeyRecord, Timestamp};
use crate::store::audit;
use crate::store::audit::Values;
use crate::store::sqlite::{Atomicity, Effect, Sqlite, WriteConnection, rows};
use crate::store::{Result, StoreError, page_of};

const INSERT: &str = "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only,
        prefer)
    SELECT id, ?2, ?3, ?4, ?5, ?6 - ?5, ?6, ?7, ?8 FROM accounts WHERE id = ?1 AND deleted_at IS NULL";

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT k.id, k.name, a.email, k.hint, k.created_at, k.last_used_at, k.expires_at, k.revoked_at,
                k.read_only, k.prefer
            FROM api_keys k JOIN accounts a ON a.id = k.account_id ",
            $rest
        )
    };
}

const LIST: &str = select!("ORDER BY k.id");

/// The numbers are those of `KeyState::code`.
macro_rules! list_of {
    ($start:literal, $direction:literal) => {
        concat!(
            select!("WHERE k.account_id = ?1 AND k.id "),
            $start,
            " AND (?4 IS NULL OR ?4 =
                CASE WHEN k.revoked_at IS NOT NULL THEN 2 WHEN k.expires_at <= ?5 THEN 1 ELSE 0 END)
            ORDER BY k.id ",
            $direction,
            " LIMIT ?3",
        )
    };
}

const LIST_OF: &str = list_of!("> ?2", "ASC");

const LIST_OF_DESCENDING: &str = list_of!("< ?2", "DESC");

const FIND_OF: &str = select!("WHERE k.account_id = ?1 AND k.id = ?2");

/// Deleting an account revokes its keys. They are not found.
const FIND: &str =
    "SELECT k.id, k.account_id, k.revoked_at IS NOT NULL, k.expires_at, k.last_used_at, a.role, k.read_only,
        k.prefer
    FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.hash = ?1 AND a.deleted_at IS NULL";

const REVOKE: &str = "UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";

/// Names a key in the audit. Its name comes last, because its owner could write anything there.
const SUBJECT: &str = "SELECT 'key ' || k.id || ' (' || k.hint || ') of ' || a.email || ': ' || k.name
    FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.id = ?1";

/// As [`SUBJECT`], with the successor, which has the same name.
const ROTATED: &str =
    "SELECT 'key ' || old.id || ' (' || old.hint || ') to key ' || new.id || ' (' || new.hint || ') of '
        || a.email || ': ' || old.name
    FROM api_keys old JOIN api_keys new ON new.id = ?2 JOIN accounts a ON a.id = old.account_id WHERE old.id = ?1";

/// Records that all keys of an account are revoked.
const RECORD_ALL: &str = "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
    SELECT ?3, ?4, ?5, 'key ' || id || ' (' || hint || ') of ' || ?2 || ': ' || name, ?6, ?7
    FROM api_keys WHERE account_id = ?1 AND revoked_at IS NULL ORDER BY id";

const INSERT_SUCCESSOR: &str =
    "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only,
        prefer)
    SELECT account_id, name, ?2, ?3, ?4, lifetime, ?4 + lifetime, read_only, prefer FROM api_keys
    WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?4)";

const SHORTEN: &str = "UPDATE api_keys SET expires_at = min(coalesce(expires_at, ?2), ?2) WHERE id = ?1";

const TOUCH: &str =
    "UPDATE api_keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)";

impl Sqlite {
    pub async fn create_key(&self, key: NewKey, actor: Actor) -> Result<KeyId> {
        self.submit(Atomicity::Savepoint, Effect::Unlisted, move |conn| {
            let (created_at, expires_at) =
                (key.created_at.as_milliseconds(), key.expires_at.map(Timestamp::as_milliseconds));
            let NewKey { account, name, hash, hint, read_only, prefer, .. } = &key;
            let params = (account.0, name.as_str(), hash.0, hint, created_at, expires_at, read_only, prefer);
            if conn.execute(INSERT, params)? == 0 {
                // Deleting an account revokes its keys, so it must not get another one afterwards.
                return Err(StoreError::Refused("the account no longer exists".into()));
            }
            let id = KeyId(conn.last_insert_rowid());
            bump_version(conn)?;
            record(conn, &actor, Action::CreateKey, SUBJECT, [id.0])?;
            Ok(id)
        })
        .await
    }

    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        self.read_long(|conn| rows::all(conn, LIST, [], rows::read)).await
    }

    pub async fn list_keys_of(&self, account: AccountId, query: &KeyQuery) -> Result<(Vec<KeyRecord>, bool)> {
        let KeyQuery { page, now } = query;
        let sql = page.direction.choose(LIST_OF, LIST_OF_DESCENDING);
        let (start, one_more) = (page.start(), page.limit.get() + 1);
        let params = (account.0, start, one_more, page.status.map(KeyState::code), now.as_milliseconds());
        Ok(page_of(self.read(|conn| rows::all(conn, sql, params, rows::read))?, page.limit))
    }

    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        self.read(|conn| rows::first(conn, FIND_OF, (account.0, id.0), rows::read))
    }

    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        self.read(|conn| rows::first(conn, FIND, [hash.0], rows::read))
    }

    pub async fn revoke_key(&self, id: KeyId, actor: Actor) -> Result<bool> {
        self.submit(Atomicity::Savepoint, Effect::Unlisted, move |conn| {
            if conn.execute(REVOKE, (id.0, actor.at.as_milliseconds()))? == 0 {
                return Ok(conn.find("SELECT 1 FROM api_keys WHERE id = ?1", [id.0], |_| Ok(()))?.is_some());
            }
            bump_version(conn)?;
            record(conn, &actor, Action::RevokeKey, SUBJECT, [id.0])?;
            Ok(true)
        })
        .await
    }

    pub async fn rotate_key(&self, id: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>> {
        self.submit(Atomicity::Savepoint, Effect::Unlisted, move |conn| {
            let params = (id.0, rotation.hash.0, &rotation.hint, rotation.now.as_milliseconds());
            if conn.execute(INSERT_SUCCESSOR, params)? == 0 {
                return Ok(None);
            }
            let new = KeyId(conn.last_insert_rowid());
            conn.execute(SHORTEN, (id.0, rotation.old_until.as_milliseconds()))?;
            bump_version(conn)?;
            record(conn, &actor, Action::RotateKey, ROTATED, [id.0, new.0])?;
            Ok(Some(new))
        })
        .await
    }

    pub async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            for (id, at) in &used {
                conn.execute(TOUCH, (id.0, at.as_milliseconds()))?;
            }
            Ok(())
        })
        .await
    }

    pub async fn keys_version(&self) -> Result<i64> {
        self.read(version)
    }
}

/// `subject` is a query for the name of the key.
fn record(conn: &Connection, actor: &Actor, action: Action, subject: &str, params: impl Params) -> Result<()> {
    let subject: String = conn.prepare_cached(subject)?.query_row(params, |row| row.get(0))?;
    audit::sqlite::record(conn, actor, action, &subject)
}

pub fn revoke_all(conn: &WriteConnection<'_>, account: AccountId, email: &Email, actor: &Actor) -> Result<()> {
    let Values { at, action, actor, client_address, request_id } = Values::of(actor, Action::RevokeKey);
    conn.execute(RECORD_ALL, (account.0, email.as_str(), at, action, actor, client_address, request_id))?;
    let revoke = "UPDATE api_keys SET revoked_at = ?2 WHERE account_id = ?1 AND revoked_at IS NULL";
    conn.execute(revoke, (account.0, at))?;
    bump_version(conn)
}

pub fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("SELECT value FROM meta WHERE key = 'keys_version'")?.query_row([], |row| row.get(0))?)
}

pub fn bump_version(conn: &WriteConnection<'_>) -> Result<()> {
    conn.execute("UPDATE meta SET value = value + 1 WHERE key = 'keys_version'", [])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::plan;

    #[test]
    fn list_reads_the_keys_of_the_account_in_order() {
        for (sql, start) in [(LIST_OF, '>'), (LIST_OF_DESCENDING, '<')] {
            let steps = plan(sql);
            let keys = format!("SEARCH k USING INDEX api_keys_by_account (account_id=? AND rowid{start}?)");
            assert!(steps.contains(&keys) && !steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
        }
    }
}
