//! API keys. Every change increases `keys_version`, which other processes poll. PostgreSQL also notifies them, so that they see
//! it earlier.

pub(super) mod postgres;

use super::sqlite::rows;
use super::statement::{Sql, both, id_list};
use super::transaction::Transaction;
use super::{Result, Store, StoreError, page_of};
use crate::domain::api_key::{KeyGrant, KeyState, NewKey, Rotation};
use crate::domain::{AccountId, Action, Actor, Email, KeyHash, KeyId, KeyRecord, PageQuery, Timestamp};

from_row!(KeyGrant { id, account, is_revoked, expires_at, last_used_at, role, read_only, prefer });

from_row!(KeyRecord { id, name, account, hint, created_at, last_used_at, expires_at, revoked_at, read_only, prefer });

/// Not a join, which PostgreSQL could begin with all accounts.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT k.id, k.name, (SELECT email FROM accounts WHERE id = k.account_id), k.hint,
                k.created_at, k.last_used_at, k.expires_at, k.revoked_at, k.read_only = 1, k.prefer
            FROM api_keys k ",
            $rest
        )
    };
}

const LIST: Sql = both(select!("ORDER BY k.id"));

/// The numbers are those of `KeyState::code`.
macro_rules! list_of {
    ($start:literal, $order:literal) => {
        concat!(
            select!("WHERE "),
            $start,
            " AND (CAST($3 AS smallint) IS NULL OR $3 =
                CASE WHEN k.revoked_at IS NOT NULL THEN 2 WHEN k.expires_at <= $4 THEN 1 ELSE 0 END)
            ORDER BY ",
            $order,
            " LIMIT $5",
        )
    };
}

/// PostgreSQL compares rows, which it then reads from one index in order.
const LIST_OF: Sql = Sql {
    sqlite: list_of!("k.account_id = $1 AND k.id > $2", "k.id"),
    postgres: list_of!("(k.account_id, k.id) > ($1, $2) AND k.account_id <= $1", "k.account_id, k.id"),
};

const LIST_OF_DESCENDING: Sql = Sql {
    sqlite: list_of!("k.account_id = $1 AND k.id < $2", "k.id DESC"),
    postgres: list_of!("(k.account_id, k.id) < ($1, $2) AND k.account_id >= $1", "k.account_id DESC, k.id DESC"),
};

const FIND_OF: Sql = both(select!("WHERE k.account_id = $1 AND k.id = $2"));

/// Deleting an account revokes its keys. They are not found. Those of a suspended account count as revoked.
const FIND: &str =
    "SELECT k.id, k.account_id, k.revoked_at IS NOT NULL OR a.suspended_at IS NOT NULL, k.expires_at, k.last_used_at,
        a.role, k.read_only, k.prefer
    FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.hash = ?1 AND a.deleted_at IS NULL";

/// The parameter is a list of ids with their times in JSON.
const TOUCH: Sql = Sql {
    sqlite: "UPDATE api_keys SET last_used_at = used.value ->> 1 FROM json_each($1) AS used
        WHERE api_keys.id = used.value ->> 0 AND (last_used_at IS NULL OR last_used_at < used.value ->> 1)",
    postgres: "UPDATE api_keys SET last_used_at = used.at
        FROM (SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS at
            FROM json_array_elements($1::text::json)) AS used
        WHERE api_keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)",
};

pub(super) const VERSION: Sql = Sql {
    sqlite: "SELECT value FROM meta WHERE key = 'keys_version'",
    postgres: "SELECT value::bigint FROM meta WHERE key = 'keys_version'",
};

const NOTE_CHANGE: Sql = Sql {
    sqlite: "UPDATE meta SET value = value + 1 WHERE key = 'keys_version'",
    postgres: "WITH bumped AS (UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'keys_version')
        SELECT pg_notify('petstore_keys', '')",
};

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] = &[LIST, LIST_OF, LIST_OF_DESCENDING, FIND_OF, VERSION, TOUCH];

impl Store {
    /// Returns what the key with this hash grants. `None` if it is unknown or its account is deleted. The caller checks
    /// whether it is revoked or has expired.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| rows::first(conn, FIND, [hash.0])),
            Self::Postgres(db) => Ok(Box::pin(db.keys.read(*hash)).await?),
        }
    }

    /// Returns all keys, in order of their creation.
    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        self.all(LIST, &[]).await
    }

    /// Returns a page of an account's keys, in the direction of the query, and whether more follow. Keys that expire at `now`
    /// or before count as expired.
    pub async fn list_keys_of(
        &self,
        account: AccountId,
        page: &PageQuery<KeyState>,
        now: Timestamp,
    ) -> Result<(Vec<KeyRecord>, bool)> {
        let sql = page.direction.choose(LIST_OF, LIST_OF_DESCENDING);
        let keys = self.all(sql, &[&account, &page.start(), &page.status, &now, &(page.limit.get() + 1)]).await?;
        Ok(page_of(keys, page.limit))
    }

    /// Returns one of the account's own keys.
    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        self.first(FIND_OF, &[&account, &id]).await
    }

    /// Records when keys were last used.
    pub async fn touch_keys(&self, mut used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        // All processes lock keys in the same order, so that they do not deadlock.
        used.sort_unstable_by_key(|(id, _)| id.0);
        let used: Vec<_> = used.iter().map(|(id, at)| [id.0, at.as_milliseconds()]).collect();
        self.write::<()>(TOUCH, &[&format!("{used:?}")]).await.map(drop)
    }

    /// Returns a number that increases whenever any process creates or changes a key.
    pub async fn keys_version(&self) -> Result<i64> {
        version(self.first(VERSION, &[]).await?)
    }

    /// Waits until the database notifies this process of a new or changed key. SQLite does not notify other processes.
    pub async fn keys_changed(&self) {
        match self {
            Self::Sqlite(_) => std::future::pending().await,
            Self::Postgres(db) => db.cluster.notified().await,
        }
    }
}

/// Returns the number in the row that [`VERSION`] finds. Fails without a row: no process would learn of a revoked key.
pub(super) fn version(row: Option<(i64,)>) -> Result<i64> {
    row.map(|(version,)| version).ok_or_else(|| StoreError::Failed("the version of the keys is missing".to_owned()))
}

transactions! { Savepoint, Unlisted:
    /// Fails with [`StoreError::Refused`] if the account was deleted.
    async fn create_key(key: NewKey, actor: Actor) -> Result<KeyId>;

    /// Revokes a key. Returns whether the key exists. A key revoked earlier keeps its time of revocation.
    async fn revoke_key(id: KeyId, actor: Actor) -> Result<bool>;

    /// Creates a successor with the key's account, name and lifetime, and returns its id. `None` if the key is unknown,
    /// revoked or expired.
    async fn rotate_key(id: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>>;
}

/// Locks the account's row first, so that an account that is being deleted gets no key.
async fn create_key(tx: &impl Transaction, key: NewKey, actor: Actor) -> Result<KeyId> {
    let insert = locking!(
        "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only, prefer)
            SELECT id, $1, $2, $3, CAST($4 AS bigint), CAST($5 AS bigint) - $4, $5, $6, $7 FROM accounts
            WHERE id = $8 AND deleted_at IS NULL",
        "FOR KEY SHARE",
        "RETURNING id"
    );
    let NewKey { account, name, hash, hint, created_at, expires_at, read_only, prefer } = key;
    let (name, read_only) = (name.as_str(), i16::from(read_only));
    let created =
        tx.first(insert, &[&name, &hash, &hint, &created_at, &expires_at, &read_only, &prefer, &account]).await?;
    let (id,) = created.ok_or_else(|| StoreError::Refused("the account no longer exists".into()))?;
    record(tx, &actor, Action::CreateKey, id, None).await?;
    Ok(id)
}

async fn revoke_key(tx: &impl Transaction, id: KeyId, actor: Actor) -> Result<bool> {
    let revoke = both("UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL");
    if tx.execute(revoke, &[&actor.at, &id]).await? == 0 {
        return Ok(tx.first::<()>(both("SELECT id FROM api_keys WHERE id = $1"), &[&id]).await?.is_some());
    }
    record(tx, &actor, Action::RevokeKey, id, None).await?;
    Ok(true)
}

/// Locks the account's row and then the old key's row, so that a key that is being revoked gets no successor.
async fn rotate_key(tx: &impl Transaction, id: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>> {
    let insert = locking!(
        "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only, prefer)
            SELECT k.account_id, k.name, $1, $2, CAST($3 AS bigint), k.lifetime, $3 + k.lifetime, k.read_only, k.prefer
            FROM api_keys k JOIN accounts a ON a.id = k.account_id
            WHERE k.id = $4 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $3)",
        "FOR KEY SHARE OF a FOR UPDATE OF k",
        "RETURNING id"
    );
    let Rotation { hash, hint, now, old_until } = rotation;
    let Some((new,)) = tx.first(insert, &[&hash, &hint, &now, &id]).await? else { return Ok(None) };
    let shorten = both("UPDATE api_keys SET expires_at = $1 WHERE id = $2 AND (expires_at IS NULL OR expires_at > $1)");
    tx.execute(shorten, &[&old_until, &id]).await?;
    record(tx, &actor, Action::RotateKey, id, Some(new)).await?;
    Ok(Some(new))
}

/// Records a change of a key, which has a `successor` if it is rotated. Then notes the change, because every other change of
/// a key waits for that.
async fn record(
    tx: &impl Transaction,
    actor: &Actor,
    action: Action,
    id: KeyId,
    successor: Option<KeyId>,
) -> Result<()> {
    // The name comes last, because the key's owner could write anything there.
    let name = both("SELECT 'key ' || k.id || ' (' || k.hint || ')'
            || coalesce(' to key ' || successor.id || ' (' || successor.hint || ')', '') || ' of ' || a.email || ': ' || k.name
        FROM api_keys k JOIN accounts a ON a.id = k.account_id LEFT JOIN api_keys successor ON successor.id = $1
        WHERE k.id = $2");
    for (subject,) in tx.all::<(String,)>(name, &[&successor, &id]).await? {
        tx.record(actor, action, &subject).await?;
    }
    note_change(tx).await
}

/// Revokes the keys of an account whose row is locked.
pub(super) async fn revoke_all(tx: &impl Transaction, account: AccountId, email: &Email, actor: &Actor) -> Result<()> {
    let revoke = both("UPDATE api_keys SET revoked_at = $1 WHERE account_id = $2 AND revoked_at IS NULL RETURNING id");
    let revoked: Vec<(i64,)> = tx.all(revoke, &[&actor.at, &account]).await?;
    let record = among!(
        "INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $1, $2, $3, 'key ' || id || ' (' || hint || ') of ' || $4 || ': ' || name, $5, $6 FROM api_keys WHERE id",
        "$7",
        "ORDER BY id"
    );
    let revoked = id_list(revoked.into_iter().map(|(id,)| id));
    tx.record_each(record, actor, Action::RevokeKey, email, &revoked).await
}

/// Tells all processes that a key has changed, or what it grants.
pub(super) async fn note_change(tx: &impl Transaction) -> Result<()> {
    tx.execute(NOTE_CHANGE, &[]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::plan;

    #[test]
    fn list_reads_the_keys_of_the_account_in_order() {
        for (sql, start) in [(LIST_OF, '>'), (LIST_OF_DESCENDING, '<')] {
            let steps = plan(sql.sqlite);
            let keys = format!("SEARCH k USING INDEX api_keys_by_account (account_id=? AND rowid{start}?)");
            assert!(steps.contains(&keys) && !steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
        }
    }
}
