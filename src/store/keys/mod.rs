//! API keys.

pub(super) mod postgres;
pub(super) mod sqlite;

use super::row::{FromRow, Row};
use super::{Result, Store};
use crate::domain::api_key::{KeyGrant, KeyQuery, NewKey, Rotation};
use crate::domain::{AccountId, Actor, KeyHash, KeyId, KeyRecord, Timestamp};

impl FromRow for KeyGrant {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self {
            id: KeyId(row.column(0)?),
            account: AccountId(row.column(1)?),
            is_revoked: row.column(2)?,
            expires_at: row.column(3)?,
            last_used_at: row.column(4)?,
            role: row.column(5)?,
            read_only: row.column(6)?,
            prefer: row.column(7)?,
        })
    }
}

impl FromRow for KeyRecord {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self {
            id: KeyId(row.column(0)?),
            name: row.column(1)?,
            account: row.column(2)?,
            hint: row.column(3)?,
            created_at: row.column(4)?,
            last_used_at: row.column(5)?,
            expires_at: row.column(6)?,
            revoked_at: row.column(7)?,
            read_only: row.column(8)?,
            prefer: row.column(9)?,
        })
    }
}

impl Store {
    /// Fails with [`StoreError::Refused`](super::StoreError::Refused) if the account was deleted.
    pub async fn create_key(&self, key: NewKey, actor: Actor) -> Result<KeyId> {
        dispatch!(self, db => db.create_key(key, actor).await)
    }

    /// Returns all keys, in order of their creation.
    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        dispatch!(self, db => db.list_keys().await)
    }

    /// Returns a page of an account's keys, in the direction of the query, and whether more follow.
    pub async fn list_keys_of(&self, account: AccountId, query: &KeyQuery) -> Result<(Vec<KeyRecord>, bool)> {
        dispatch!(self, db => db.list_keys_of(account, query).await)
    }

    /// Returns one of the account's own keys.
    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        dispatch!(self, db => db.find_key_of(account, id).await)
    }

    /// Returns what the key with this hash grants. `None` if it is unknown or its account is deleted. The caller checks
    /// whether it is revoked or has expired.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        match self {
            Self::Sqlite(db) => db.find_key(hash).await,
            Self::Postgres(db) => Box::pin(db.find_key(hash)).await,
        }
    }

    /// Revokes a key. Returns whether the key exists. A key revoked earlier keeps its time of revocation.
    pub async fn revoke_key(&self, id: KeyId, actor: Actor) -> Result<bool> {
        dispatch!(self, db => db.revoke_key(id, actor).await)
    }

    /// Creates a successor with the key's account, name and lifetime, and returns its id. `None` if the key is unknown,
    /// revoked or expired.
    pub async fn rotate_key(&self, id: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>> {
        dispatch!(self, db => db.rotate_key(id, rotation, actor).await)
    }

    /// Records when keys were last used.
    pub async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        dispatch!(self, db => db.touch_keys(used).await)
    }

    /// Returns a number that increases whenever any process creates or changes a key.
    pub async fn keys_version(&self) -> Result<i64> {
        dispatch!(self, db => db.keys_version().await)
    }

    /// Waits until the database notifies this process of a new or changed key. SQLite does not notify other processes.
    pub async fn keys_changed(&self) {
        match self {
            Self::Sqlite(_) => std::future::pending().await,
            Self::Postgres(db) => db.keys_changed().await,
        }
    }
}
