//! Idempotency keys of writes, and the responses stored under them.

mod sqlite;

use std::convert::Infallible;
use std::sync::Arc;

use super::Store;
use super::statement::Sql;
use crate::domain::idempotency::RETENTION;
use crate::domain::{KeyedRequest, Timestamp};

const DELETE_EXPIRED: Sql = Sql {
    sqlite: "DELETE FROM idempotency_records WHERE rowid IN (
        SELECT rowid FROM idempotency_records WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) RETURNING status",
    // Skips rows that another process is deleting. Selects by `ctid`, which does not change while a row is locked. A generic
    // plan that joins by key may read the whole table.
    postgres: "DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency_records WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
        FOR UPDATE SKIP LOCKED)) RETURNING status",
};

/// Deletes messages whose requests began before their account was erased. To check that for each new message would cost 6 % of
/// the instructions of its request.
const DELETE_LATE: Sql = Sql {
    sqlite: "DELETE FROM messages WHERE account_id IN (
        SELECT id FROM accounts WHERE deleted_at > $1 AND email_folded = 'erased ' || id)",
    postgres: "DELETE FROM messages WHERE account_id = ANY (ARRAY(
        SELECT id FROM accounts WHERE deleted_at > $1 AND email_folded = 'erased ' || id))",
};

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] = &[DELETE_EXPIRED, DELETE_LATE];

impl Store {
    /// Deletes at most `limit` of the responses that have expired by `now`, oldest first, and late messages of erased accounts.
    /// Returns the number of responses.
    pub async fn delete_expired_responses(&self, now: Timestamp, limit: u32) -> super::Result<u64> {
        self.write::<()>(DELETE_LATE, &[&now.minus(RETENTION)]).await?;
        self.delete(DELETE_EXPIRED, now, limit).await
    }
}

/// A response as it is stored and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub location: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// A response without `Location`.
    pub const fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, location: None, body }
    }
}

/// The idempotency key of a write that results in a `T`, and the response to store under it.
#[derive(Clone)]
pub struct WriteKey<T> {
    pub request: KeyedRequest,
    respond: Arc<dyn Fn(&T) -> StoredResponse + Send + Sync>,
}

impl<T> WriteKey<T> {
    pub fn new(request: KeyedRequest, respond: impl Fn(&T) -> StoredResponse + Send + Sync + 'static) -> Self {
        Self { request, respond: Arc::new(respond) }
    }

    /// The response to the write that resulted in `value`.
    pub fn response(&self, value: &T) -> StoredResponse {
        (self.respond)(value)
    }
}

/// Outcome of a write. Without a key, it is `Executed` or `Refused`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T, R = Infallible> {
    /// The write was carried out. With a key, its response is stored in the same transaction.
    Executed(T),
    /// The write was carried out for an earlier request with this response.
    Replayed(StoredResponse),
    /// The write is not possible. The database is unchanged.
    Refused(R),
    /// The key was used for a different request.
    KeyMismatch,
    /// Another process is carrying out a request with this key, and its outcome is not yet known.
    InProgress,
}

impl<T, R> From<Result<T, R>> for Outcome<T, R> {
    fn from(result: Result<T, R>) -> Self {
        match result {
            Ok(value) => Self::Executed(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}
