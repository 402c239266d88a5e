//! Responses stored under idempotency keys.

use crate::domain::KeyedRequest;
use crate::store::sqlite::{Atomicity, Effect, NewRow, Sqlite, WriteConnection};
use crate::store::{Outcome, Result, StoredResponse, WriteKey};

impl Sqlite {
    /// Adds a row, with an optional idempotency key. Rows without a key share statements.
    pub(in crate::store) async fn create<R: NewRow>(
        &self,
        row: R,
        key: Option<WriteKey<R::Added>>,
    ) -> Result<Outcome<R::Added>> {
        if key.is_none() {
            return Ok(Outcome::Executed(self.add_row(row).await?));
        }
        self.write_keyed(Atomicity::Savepoint, R::EFFECT, key, |conn| Ok(Ok(row.insert(conn)?))).await
    }

    /// Submits a write with an optional idempotency key. `atomicity` is that of the write without a key. No list contains
    /// the stored response, so `effect` is that of `write`.
    ///
    /// If `write` returns a refusal, it must not have changed anything.
    pub(in crate::store) async fn write_keyed<T: Send + 'static, R: Send + 'static>(
        &self,
        atomicity: Atomicity,
        effect: Effect,
        key: Option<WriteKey<T>>,
        write: impl FnOnce(&WriteConnection<'_>) -> Result<Result<T, R>> + Send + 'static,
    ) -> Result<Outcome<T, R>> {
        // With a key, the write and its stored response are several statements.
        let atomicity = if key.is_some() { Atomicity::Savepoint } else { atomicity };
        let write = move |conn: &WriteConnection<'_>| match key {
            None => Ok(write(conn)?.into()),
            Some(key) => write_once(conn, &key, write),
        };
        self.submit(atomicity, effect, write).await
    }
}

/// Runs `write` unless its key was used before, and stores its response.
///
/// Jobs of the writer run one after another, so the second of two equal requests finds the response of the first. Both
/// are acknowledged only after the commit.
fn write_once<T, R>(
    conn: &WriteConnection<'_>,
    key: &WriteKey<T>,
    write: impl FnOnce(&WriteConnection<'_>) -> Result<Result<T, R>>,
) -> Result<Outcome<T, R>> {
    if let Some((fingerprint, response)) = find(conn, &key.request)? {
        let is_same = fingerprint == key.request.fingerprint;
        return Ok(if is_same { Outcome::Replayed(response) } else { Outcome::KeyMismatch });
    }
    let result = write(conn)?;
    if let Ok(value) = &result {
        insert(conn, &key.request, &key.response(value))?;
    }
    Ok(result.into())
}

/// Returns the fingerprint and the response stored under a key. `None` if there is none or it has expired.
fn find(conn: &WriteConnection<'_>, request: &KeyedRequest) -> Result<Option<([u8; 32], StoredResponse)>> {
    let find = "SELECT fingerprint, status, location, body FROM idempotency_records
                WHERE key_hash = ?1 AND expires_at > ?2";
    let key = (request.key_hash, request.now.as_milliseconds());
    let found = conn.find(find, key, |row| {
        Ok((row.get(0)?, StoredResponse { status: row.get(1)?, location: row.get(2)?, body: row.get(3)? }))
    });
    Ok(found?)
}

/// Replaces an expired record. A deleted account gets none.
fn insert(conn: &WriteConnection<'_>, request: &KeyedRequest, response: &StoredResponse) -> Result<()> {
    let insert = "INSERT OR REPLACE INTO idempotency_records
                      (key_hash, account_id, fingerprint, expires_at, status, location, body)
                  SELECT ?1, id, ?3, ?4, ?5, ?6, ?7 FROM accounts WHERE id = ?2 AND deleted_at IS NULL";
    let KeyedRequest { key_hash, account, fingerprint, .. } = request;
    let StoredResponse { status, location, body } = response;
    conn.execute(insert, (key_hash, account, fingerprint, request.expires_at(), status, location, body))?;
    Ok(())
}
