//! API keys.

pub(super) mod postgres;
pub(super) mod sqlite;

use super::{Result, Store};
use crate::domain::api_key::{KeyGrant, KeyQuery, NewKey, Rotation};
use crate::domain::{AccountId, Actor, KeyHash, KeyId, KeyRecord, Timestamp};

from_row!(KeyGrant { id, account, is_revoked, expires_at, last_used_at, role, read_only, prefer });

from_row!(KeyRecord { id, name, account, hint, created_at, last_used_at, expires_at, revoked_at, read_only, prefer });

methods! {
    /// Fails with [`StoreError::Refused`](super::StoreError::Refused) if the account was deleted.
    async fn create_key(key: NewKey, actor: Actor) -> Result<KeyId>;

    /// Returns all keys, in order of their creation.
    async fn list_keys() -> Result<Vec<KeyRecord>>;

    /// Returns a page of an account's keys, in the direction of the query, and whether more follow.
    async fn list_keys_of(account: AccountId, query: &KeyQuery) -> Result<(Vec<KeyRecord>, bool)>;

    /// Returns one of the account's own keys.
    async fn find_key_of(account: AccountId, id: KeyId) -> Result<Option<KeyRecord>>;

    /// Returns what the key with this hash grants. `None` if it is unknown or its account is deleted. The caller checks
    /// whether it is revoked or has expired.
    async fn find_key(hash: &KeyHash) -> Result<Option<KeyGrant>>;

    /// Revokes a key. Returns whether the key exists. A key revoked earlier keeps its time of revocation.
    async fn revoke_key(id: KeyId, actor: Actor) -> Result<bool>;

    /// Creates a successor with the key's account, name and lifetime, and returns its id. `None` if the key is unknown,
    /// revoked or expired.
    async fn rotate_key(id: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>>;

    /// Records when keys were last used.
    async fn touch_keys(used: Vec<(KeyId, Timestamp)>) -> Result<()>;

    /// Returns a number that increases whenever any process creates or changes a key.
    async fn keys_version() -> Result<i64>;
}

impl Store {
    /// Waits until the database notifies this process of a new or changed key. SQLite does not notify other processes.
    pub async fn keys_changed(&self) {
        match self {
            Self::Sqlite(_) => std::future::pending().await,
            Self::Postgres(db) => db.keys_changed().await,
        }
    }
}
