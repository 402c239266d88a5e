//! API keys in SQLite.

use crate::domain::KeyHash;
use crate::domain::api_key::KeyGrant;
use crate::store::Result;
use crate::store::sqlite::{Sqlite, rows};

/// Deleting an account revokes its keys. They are not found. Those of a suspended account count as revoked.
const FIND: &str =
    "SELECT k.id, k.account_id, k.revoked_at IS NOT NULL OR a.suspended_at IS NOT NULL, k.expires_at, k.last_used_at,
        a.role, k.read_only, k.prefer
    FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.hash = ?1 AND a.deleted_at IS NULL";

impl Sqlite {
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        self.read(|conn| rows::first(conn, FIND, [hash.0], rows::read))
    }
}
