//! Lookups of API keys in PostgreSQL.

use std::collections::HashMap;

use crate::domain::KeyHash;
use crate::domain::api_key::KeyGrant;
use crate::store::row::FromRow;
use postgres_group_commit::{Pending, Read, Readers};

/// Prepared on connections of its own. Not a join, which PostgreSQL could begin with all accounts. Deleting
/// an account revokes its keys, and its revoked keys are not found. Those of a suspended account count as revoked.
pub const FIND: &str = "SELECT id, account_id,
        revoked_at IS NOT NULL OR (SELECT suspended_at FROM accounts WHERE accounts.id = account_id) IS NOT NULL,
        expires_at, last_used_at, (SELECT role FROM accounts WHERE accounts.id = account_id), read_only = 1, prefer, hash
    FROM api_keys WHERE hash = ANY ($1::bytea[]) AND CASE WHEN revoked_at IS NULL THEN true
        ELSE EXISTS (SELECT FROM accounts a WHERE a.id = account_id AND a.deleted_at IS NULL) END";

/// Looks up a batch of keys in one statement, so a flood of unknown keys becomes a few large statements.
impl Read for KeyHash {
    type Answer = Option<KeyGrant>;

    async fn run(readers: &Readers, batch: Vec<Pending<Self>>) {
        let hashes: Vec<_> = batch.iter().map(|pending| &pending.read.0[..]).collect();
        let found = readers.query(FIND, &[&hashes]).await;
        let found = found.and_then(|rows| {
            let grants = rows.iter().map(|row| Ok((row.try_get::<_, &[u8]>(8)?.to_owned(), KeyGrant::from_row(row)?)));
            grants.collect::<postgres_group_commit::Result<HashMap<_, _>>>()
        });
        for Pending { read, reply } in batch {
            _ = reply.send(found.as_ref().map(|found| found.get(&read.0[..]).cloned()).map_err(Clone::clone));
        }
    }
}
