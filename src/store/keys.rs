//! API keys, on either database.

use super::{Result, Store, postgres, sqlite};
use crate::domain::api_key::{KeyGrant, NewKey, Rotation};
use crate::domain::{AccountId, KeyHash, KeyId, KeyRecord, Timestamp};

impl Store {
    /// Fails with [`StoreError::Refused`](super::StoreError::Refused) where the account was deleted.
    pub async fn create_key(&self, key: NewKey) -> Result<KeyId> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::insert(conn, &key)).await,
            Self::Postgres(db) => postgres::keys::insert(db, &key).await,
        }
    }

    /// All keys, in the order they were made.
    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::keys::list),
            Self::Postgres(db) => postgres::keys::list(db).await,
        }
    }

    /// At most `limit` of an account's keys, newest first, those before `before`; and whether more follow.
    pub async fn list_keys_of(
        &self,
        account: AccountId,
        before: Option<KeyId>,
        limit: u32,
    ) -> Result<(Vec<KeyRecord>, bool)> {
        let before = before.unwrap_or(KeyId(i64::MAX));
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::list_of(conn, account, before, limit)),
            Self::Postgres(db) => postgres::keys::list_of(db, account, before, limit).await,
        }
    }

    /// One of an account's own keys.
    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::find_of(conn, account, id)),
            Self::Postgres(db) => postgres::keys::find_of(db, account, id).await,
        }
    }

    /// What the key with this hash grants; nothing where it is unknown or revoked. Expiry is the caller's to check.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::find(conn, hash)),
            Self::Postgres(db) => Box::pin(postgres::keys::find(db, hash)).await,
        }
    }

    /// Revokes a key at `now`; returns whether there is such a key. One revoked before stays as it was.
    pub async fn revoke_key(&self, id: KeyId, now: Timestamp) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::revoke(conn, id, now)).await,
            Self::Postgres(db) => postgres::keys::revoke(db, id, now).await,
        }
    }

    /// Gives a key a successor with its account, name and lifetime. Returns the successor's id,
    /// or nothing where the key is unknown, revoked or expired.
    pub async fn rotate_key(&self, id: KeyId, rotation: Rotation) -> Result<Option<KeyId>> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::rotate(conn, id, &rotation)).await,
            Self::Postgres(db) => postgres::keys::rotate(db, id, &rotation).await,
        }
    }

    /// Notes when keys were last used.
    pub async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::touch(conn, &used)).await,
            Self::Postgres(db) => postgres::keys::touch(db, &used).await,
        }
    }

    /// Grows with every key that is made or changed, by whichever process.
    pub async fn keys_version(&self) -> Result<i64> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::keys::version),
            Self::Postgres(db) => postgres::keys::version(db).await,
        }
    }

    /// Waits until the database says by itself that a key was made or changed; for ever where it does not.
    pub async fn keys_changed(&self) {
        match self {
            Self::Sqlite(_) => std::future::pending().await,
            Self::Postgres(db) => db.keys_changed().await,
        }
    }
}
