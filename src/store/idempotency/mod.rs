//! Idempotency keys of writes, and the responses stored under them.

pub(super) mod postgres;
mod sqlite;

use std::convert::Infallible;
use std::sync::Arc;

use crate::domain::KeyedRequest;

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

impl<T, R> Outcome<T, R> {
    /// Returns the result of the write if it was carried out now.
    pub fn executed(self) -> Option<T> {
        match self {
            Self::Executed(value) => Some(value),
            _ => None,
        }
    }
}

impl<T, R> From<Result<T, R>> for Outcome<T, R> {
    fn from(result: Result<T, R>) -> Self {
        match result {
            Ok(value) => Self::Executed(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}
