//! API keys. Every change increases `keys_version`, which other processes poll, and notifies them, so that they see it
//! earlier. Each change is one statement and therefore atomic.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::domain::api_key::{KeyGrant, KeyQuery, KeyState, NewKey, Rotation};
use crate::domain::{AccountId, Action, Actor, KeyHash, KeyId, KeyRecord, Timestamp};
use crate::store::audit::Values;
use crate::store::postgres::database::Postgres;
use crate::store::postgres::rows;
use crate::store::row::FromRow;
use crate::store::{Result, StoreError, page_of};
use postgres_group_commit::{Pending, Read, Readers};

/// Locks the account's row first, so that an account that is being deleted gets no key. In the audit, the key's name comes
/// last, because its owner could write anything there.
const INSERT: &str = "WITH owner AS (
        SELECT id, email FROM accounts WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE
    ), new AS (
        INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only, prefer)
        SELECT id, $2, $3, $4, $5::bigint, $6::bigint - $5, $6, $7, $8 FROM owner RETURNING id
    ), bumped AS (
        UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'keys_version' AND EXISTS (SELECT FROM new)
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $9, $10, $11, 'key ' || new.id || ' (' || $4 || ') of ' || owner.email || ': ' || $2, $12, $13
        FROM new, owner
    ) SELECT id, pg_notify('petstore_keys', '') FROM new";

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

const LIST: &str = select!("ORDER BY k.id");

/// Compares rows, which PostgreSQL reads from one index in order. The numbers are those of `KeyState::code`.
macro_rules! list_of {
    ($start:literal, $order:literal) => {
        concat!(
            select!("WHERE "),
            $start,
            " AND ($4::smallint IS NULL OR $4 =
                CASE WHEN k.revoked_at IS NOT NULL THEN 2 WHEN k.expires_at <= $5 THEN 1 ELSE 0 END)
            ORDER BY ",
            $order,
            " LIMIT $3",
        )
    };
}

const LIST_OF: &str = list_of!("(k.account_id, k.id) > ($1, $2) AND k.account_id <= $1", "k.account_id, k.id");

const LIST_OF_DESCENDING: &str =
    list_of!("(k.account_id, k.id) < ($1, $2) AND k.account_id >= $1", "k.account_id DESC, k.id DESC");

const FIND_OF: &str = select!("WHERE k.account_id = $1 AND k.id = $2");

/// Prepared on connections of its own. Not a join, as `select` says. Deleting an account revokes its keys, and its revoked
/// keys are not found.
pub const FIND: &str = "SELECT id, account_id, revoked_at IS NOT NULL, expires_at, last_used_at,
        (SELECT role FROM accounts WHERE accounts.id = account_id), read_only = 1, prefer, hash
    FROM api_keys WHERE hash = ANY ($1::bytea[]) AND CASE WHEN revoked_at IS NULL THEN true
        ELSE EXISTS (SELECT FROM accounts a WHERE a.id = account_id AND a.deleted_at IS NULL) END";

const REVOKE: &str = "WITH given AS (
        SELECT id, account_id, hint, name, revoked_at FROM api_keys WHERE id = $1 FOR NO KEY UPDATE
    ), revoked AS (
        UPDATE api_keys SET revoked_at = $2 WHERE id IN (SELECT id FROM given WHERE revoked_at IS NULL)
    ), bumped AS (
        UPDATE meta SET value = (value::bigint + 1)::text
        WHERE key = 'keys_version' AND EXISTS (SELECT FROM given WHERE revoked_at IS NULL)
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $2, $3, $4, 'key ' || given.id || ' (' || hint || ') of ' || email || ': ' || name, $5, $6
        FROM given JOIN accounts ON accounts.id = account_id WHERE revoked_at IS NULL
    ) SELECT id, CASE WHEN revoked_at IS NULL THEN pg_notify('petstore_keys', '') END FROM given";

/// Locks the account's row and then the old key's row, so that a key that is being revoked gets no successor.
const ROTATE: &str = "WITH owner AS (
        SELECT a.id, a.email FROM accounts a JOIN api_keys k ON k.account_id = a.id WHERE k.id = $1 FOR KEY SHARE OF a
    ), old AS (
        SELECT id, account_id, name, hint, lifetime, read_only, prefer FROM api_keys
        WHERE id = $1 AND account_id IN (SELECT id FROM owner)
            AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $4) FOR UPDATE
    ), new AS (
        INSERT INTO api_keys (account_id, name, hash, hint, created_at, lifetime, expires_at, read_only, prefer)
        SELECT account_id, name, $2, $3, $4, lifetime, $4 + lifetime, read_only, prefer FROM old RETURNING id
    ), shortened AS (
        UPDATE api_keys SET expires_at = least(expires_at, $5) WHERE id IN (SELECT id FROM old)
    ), bumped AS (
        UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'keys_version' AND EXISTS (SELECT FROM new)
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $6, $7, $8, 'key ' || old.id || ' (' || old.hint || ') to key ' || new.id || ' (' || $3 || ') of '
            || owner.email || ': ' || old.name, $9, $10
        FROM old, new, owner
    ) SELECT id, pg_notify('petstore_keys', '') FROM new";

const TOUCH: &str = "UPDATE api_keys SET last_used_at = used.at
    FROM unnest($1::bigint[], $2::bigint[]) AS used (id, at)
    WHERE api_keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)";

const VERSION: &str = "SELECT value::bigint FROM meta WHERE key = 'keys_version'";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[LIST, LIST_OF, LIST_OF_DESCENDING, FIND_OF, VERSION, INSERT, REVOKE, ROTATE, TOUCH];

impl Postgres {
    pub async fn create_key(&self, key: NewKey, actor: Actor) -> Result<KeyId> {
        let expires_at = key.expires_at.map(Timestamp::as_milliseconds);
        let (name, hash, created_at) = (key.name.as_str(), &key.hash.0[..], key.created_at.as_milliseconds());
        let new: [&(dyn ToSql + Sync); 8] =
            [&key.account.0, &name, &hash, &key.hint, &created_at, &expires_at, &i16::from(key.read_only), &key.prefer];
        let Values { at, action, actor, client_address, request_id } = Values::of(&actor, Action::CreateKey);
        let recorded: [&(dyn ToSql + Sync); 5] = [&at, &action, &actor, &client_address, &request_id];
        let rows = self.write(INSERT, &[&new[..], &recorded[..]].concat()).await?;
        id(&rows)?.ok_or_else(|| StoreError::Refused("the account no longer exists".into()))
    }

    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        rows::all(&self.readers.query(LIST, &[]).await?)
    }

    pub async fn list_keys_of(&self, account: AccountId, query: &KeyQuery) -> Result<(Vec<KeyRecord>, bool)> {
        let KeyQuery { page, now } = query;
        let sql = page.direction.choose(LIST_OF, LIST_OF_DESCENDING);
        let (start, one_more) = (page.start(), page.limit.get() + 1);
        let (state, now) = (page.status.map(KeyState::code), now.as_milliseconds());
        let rows = self.readers.query(sql, &[&account.0, &start, &one_more, &state, &now]).await?;
        Ok(page_of(rows::all(&rows)?, page.limit))
    }

    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        let rows = self.readers.query(FIND_OF, &[&account.0, &id.0]).await?;
        rows::first(&rows)
    }

    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        Ok(self.keys.read(*hash).await?)
    }

    pub async fn revoke_key(&self, key: KeyId, actor: Actor) -> Result<bool> {
        let Values { at, action, actor, client_address, request_id } = Values::of(&actor, Action::RevokeKey);
        let rows = self.write(REVOKE, &[&key.0, &at, &action, &actor, &client_address, &request_id]).await?;
        Ok(!rows.is_empty())
    }

    pub async fn rotate_key(&self, key: KeyId, rotation: Rotation, actor: Actor) -> Result<Option<KeyId>> {
        let (now, old_until) = (rotation.now.as_milliseconds(), rotation.old_until.as_milliseconds());
        let hash = &rotation.hash.0[..];
        let Values { at, action, actor, client_address, request_id } = Values::of(&actor, Action::RotateKey);
        let parameters: [&(dyn ToSql + Sync); 10] =
            [&key.0, &hash, &rotation.hint, &now, &old_until, &at, &action, &actor, &client_address, &request_id];
        id(&self.write(ROTATE, &parameters).await?)
    }

    pub async fn touch_keys(&self, mut used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        // All processes lock keys in the same order, so that they do not deadlock.
        used.sort_unstable_by_key(|(id, _)| id.0);
        let (ids, times): (Vec<_>, Vec<_>) = used.iter().map(|(id, at)| (id.0, at.as_milliseconds())).unzip();
        self.write(TOUCH, &[&ids, &times]).await.map(|_| ())
    }

    pub async fn keys_version(&self) -> Result<i64> {
        let rows = self.readers.query(VERSION, &[]).await?;
        Ok(rows::only(&rows)?.try_get(0)?)
    }
}

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

fn id(rows: &[Row]) -> Result<Option<KeyId>> {
    rows.first().map(|row| Ok(KeyId(row.try_get(0)?))).transpose()
}
