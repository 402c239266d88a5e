//! Answers that are kept for requests with a key.

use rusqlite::{Connection, OptionalExtension};

use super::Batch;
use crate::domain::{Answer, KeyedRequest, Outcome, Timestamp};
use crate::store::Result;

/// Carries out `effect` unless the request's key was used before, and keeps its answer; where it is refused, it has written
/// nothing, and nothing is kept.
///
/// To be run as one job of the writer: jobs run one after the other, so of two equal requests the second one finds the
/// answer of the first, and neither of them is acknowledged before that answer is on the disk.
pub fn once<R>(
    batch: &Batch<'_>,
    request: &KeyedRequest,
    effect: impl FnOnce(&Batch<'_>) -> Result<std::result::Result<Answer, R>>,
) -> Result<Outcome<R>> {
    if let Some((fingerprint, answer)) = find(batch, request)? {
        return Ok(if fingerprint == request.fingerprint { Outcome::Again(answer) } else { Outcome::Reused });
    }
    match effect(batch)? {
        Ok(answer) => keep(batch, request, &answer).map(|()| Outcome::First(answer)),
        Err(refused) => Ok(Outcome::Refused(refused)),
    }
}

/// What the key was used for and what the answer was; nothing where that has expired.
fn find(conn: &Connection, request: &KeyedRequest) -> Result<Option<([u8; 32], Answer)>> {
    let find = "SELECT fingerprint, status, location, body FROM idempotency_records
                WHERE key_hash = ?1 AND expires_at > ?2";
    let key = (request.key_hash, request.now.as_milliseconds());
    let found = conn.prepare_cached(find)?.query_row(key, |row| {
        Ok((row.get(0)?, Answer { status: row.get(1)?, location: row.get(2)?, body: row.get(3)? }))
    });
    Ok(found.optional()?)
}

/// Replaces a record that has expired.
fn keep(conn: &Connection, request: &KeyedRequest, answer: &Answer) -> Result<()> {
    let keep = "INSERT OR REPLACE INTO idempotency_records
                    (key_hash, account_id, fingerprint, expires_at, status, location, body)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    conn.prepare_cached(keep)?.execute((
        request.key_hash,
        request.account.0,
        request.fingerprint,
        request.expires_at().as_milliseconds(),
        answer.status,
        answer.location.as_deref(),
        &*answer.body,
    ))?;
    Ok(())
}

/// Deletes at most `limit` of the records that have expired at `now`, oldest first; returns how many these were.
pub fn delete_expired(conn: &Connection, now: Timestamp, limit: u32) -> Result<u64> {
    let delete = "DELETE FROM idempotency_records WHERE rowid IN (
                      SELECT rowid FROM idempotency_records WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    Ok(conn.prepare_cached(delete)?.execute((now.as_milliseconds(), limit))? as u64)
}
