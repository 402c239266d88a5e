//! API keys in SQLite. Every change increments `keys_version`, which other processes poll.

use rusqlite::{Connection, OptionalExtension, Row, Rows};

use super::Sqlite;
use super::writer::Atomicity;
use crate::domain::api_key::{KeyGrant, NewKey, Rotation};
use crate::domain::{AccountId, Email, KeyHash, KeyId, KeyRecord, Timestamp};
use crate::store::{Result, StoreError};

impl Sqlite {
    pub async fn create_key(&self, key: NewKey) -> Result<KeyId> {
        self.submit(Atomicity::Savepoint, move |batch| insert(batch, &key)).await
    }

    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        self.read_long(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT k.id, k.name, a.email, k.hint, k.created_at, k.last_used_at, k.expires_at, k.revoked_at
                 FROM api_keys k JOIN accounts a ON a.id = k.account_id ORDER BY k.id",
            )?;
            records(statement.query([])?)
        })
        .await
    }

    pub async fn list_keys_of(
        &self,
        account: AccountId,
        before: Option<KeyId>,
        limit: u32,
    ) -> Result<(Vec<KeyRecord>, bool)> {
        self.read(|conn| list_of(conn, account, before.unwrap_or(KeyId(i64::MAX)), limit))
    }

    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT k.id, k.name, a.email, k.hint, k.created_at, k.last_used_at, k.expires_at, k.revoked_at
                 FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.account_id = ?1 AND k.id = ?2",
            )?;
            Ok(records(statement.query((account.0, id.0))?)?.pop())
        })
    }

    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        self.read(|conn| find(conn, hash))
    }

    pub async fn revoke_key(&self, id: KeyId, now: Timestamp) -> Result<bool> {
        self.submit(Atomicity::Savepoint, move |batch| {
            let revoke = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";
            let revoked = batch.prepare_cached(revoke)?.execute((id.0, now.as_milliseconds()))?;
            bump_version(batch)?;
            Ok(revoked == 1)
        })
        .await
    }

    pub async fn rotate_key(&self, id: KeyId, rotation: Rotation) -> Result<Option<KeyId>> {
        self.submit(Atomicity::Savepoint, move |batch| rotate(batch, id, &rotation)).await
    }

    pub async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        self.submit(Atomicity::Savepoint, move |batch| {
            let mut statement = batch.prepare_cached(
                "UPDATE api_keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)",
            )?;
            for (id, at) in &used {
                statement.execute((id.0, at.as_milliseconds()))?;
            }
            Ok(())
        })
        .await
    }

    pub async fn keys_version(&self) -> Result<i64> {
        self.read(version)
    }

    /// Never returns, because SQLite does not notify other processes.
    pub async fn keys_changed(&self) {
        std::future::pending::<()>().await;
    }
}

fn insert(conn: &Connection, key: &NewKey) -> Result<KeyId> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at)
             SELECT id, ?2, ?3, ?4, ?5, ?6 - ?5, ?6 FROM accounts WHERE id = ?1 AND deleted_at IS NULL",
        )?
        .execute((
            key.account.0,
            key.name.as_str(),
            key.hash.0,
            &key.hint,
            key.created_at.as_milliseconds(),
            key.expires_at.map(Timestamp::as_milliseconds),
        ))?;
    if inserted == 0 {
        // Deleting an account revokes its keys. None may be created afterwards.
        return Err(StoreError::Refused("the account no longer exists".into()));
    }
    let id = KeyId(conn.last_insert_rowid());
    bump_version(conn)?;
    Ok(id)
}

/// Reads one row beyond the limit to learn whether more follow.
fn list_of(conn: &Connection, account: AccountId, before: KeyId, limit: u32) -> Result<(Vec<KeyRecord>, bool)> {
    let mut statement = conn.prepare_cached(
        "SELECT k.id, k.name, a.email, k.hint, k.created_at, k.last_used_at, k.expires_at, k.revoked_at
         FROM api_keys k JOIN accounts a ON a.id = k.account_id
         WHERE k.account_id = ?1 AND k.id < ?2 ORDER BY k.id DESC LIMIT ?3",
    )?;
    let mut keys = records(statement.query((account.0, before.0, i64::from(limit) + 1))?)?;
    let more = keys.len() > limit as usize;
    keys.truncate(limit as usize);
    Ok((keys, more))
}

fn records(mut rows: Rows<'_>) -> Result<Vec<KeyRecord>> {
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let email: String = row.get(2)?;
        keys.push(KeyRecord {
            id: KeyId(row.get(0)?),
            name: row.get(1)?,
            account: Email::parse(&email).map_err(|error| StoreError::Failed(format!("email {error}")))?,
            hint: row.get(3)?,
            created_at: Timestamp::from_milliseconds(row.get(4)?),
            last_used_at: time(row, 5)?,
            expires_at: time(row, 6)?,
            revoked_at: time(row, 7)?,
        });
    }
    Ok(keys)
}

fn find(conn: &Connection, hash: &KeyHash) -> Result<Option<KeyGrant>> {
    Ok(conn
        .prepare_cached(
            "SELECT id, account_id, expires_at, last_used_at FROM api_keys WHERE hash = ?1 AND revoked_at IS NULL",
        )?
        .query_row([hash.0], |row| {
            Ok(KeyGrant {
                id: KeyId(row.get(0)?),
                account: AccountId(row.get(1)?),
                expires_at: time(row, 2)?,
                last_used_at: time(row, 3)?,
            })
        })
        .optional()?)
}

/// Revokes all keys of an account.
pub fn revoke_all(conn: &Connection, account: AccountId, now: Timestamp) -> Result<()> {
    conn.prepare_cached("UPDATE api_keys SET revoked_at = ?2 WHERE account_id = ?1 AND revoked_at IS NULL")?
        .execute((account.0, now.as_milliseconds()))?;
    bump_version(conn)
}

fn rotate(conn: &Connection, id: KeyId, rotation: &Rotation) -> Result<Option<KeyId>> {
    let now = rotation.now.as_milliseconds();
    let inserted = conn
        .prepare_cached(
            "INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at)
             SELECT account_id, name, ?2, ?3, ?4, lifetime, ?4 + lifetime FROM api_keys
             WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?4)",
        )?
        .execute((id.0, rotation.hash.0, &rotation.hint, now))?;
    if inserted == 0 {
        return Ok(None);
    }
    let new = KeyId(conn.last_insert_rowid());
    conn.prepare_cached("UPDATE api_keys SET expires_at = min(coalesce(expires_at, ?2), ?2) WHERE id = ?1")?
        .execute((id.0, rotation.old_until.as_milliseconds()))?;
    bump_version(conn)?;
    Ok(Some(new))
}

pub fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("SELECT value FROM meta WHERE key = 'keys_version'")?.query_row([], |row| row.get(0))?)
}

fn bump_version(conn: &Connection) -> Result<()> {
    conn.prepare_cached("UPDATE meta SET value = value + 1 WHERE key = 'keys_version'")?.execute([])?;
    Ok(())
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_milliseconds))
}
