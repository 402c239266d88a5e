//! A call of an operation, as handlers get it.

use axum::http::Method;
use axum::http::request::Parts;

use super::caller::Caller;
use super::error::ApiError;
use super::input::idempotency::IDEMPOTENCY_KEY;
use super::input::query_and_body::{self, RequestBody};
use super::operations::Operation;
use super::state::Api;
use crate::domain::{AccountId, IdempotencyKey, Invalid, KeyedRequest, Role};
use crate::store::{StoredResponse, WriteKey};

/// A call of an operation by an authenticated account.
pub struct Call<'r> {
    pub api: &'r Api,
    pub operation: Operation,
    pub account: AccountId,
    pub role: Role,
    pub head: &'r Parts,
    /// Empty if the operation only reads.
    pub body: String,
}

impl<'r> Call<'r> {
    /// Reads the body of an admitted request. Checks its size and media type first.
    pub async fn read(
        operation: Operation,
        api: &'r Api,
        head: &'r Parts,
        body: &mut impl RequestBody,
        caller: &Caller<'_>,
    ) -> Result<Self, ApiError> {
        let account = caller.account().expect("callers of operations with an account are admitted first");
        let is_chunked = query_and_body::check_declared_body(&head.headers)?;
        let takes_body = *operation.method() == Method::POST;
        let bytes = match takes_body || is_chunked {
            true => query_and_body::read(&head.headers, body, is_chunked).await?,
            false => Vec::new(),
        };
        let body = if takes_body { query_and_body::json_text(head, bytes)? } else { String::new() };
        Ok(Self { api, operation, account, role: caller.role(), head, body })
    }

    /// The customer whose orders the caller may see and change. `None` for staff, who may see and change all.
    pub fn customer(&self) -> Option<AccountId> {
        (self.role == Role::Customer).then_some(self.account)
    }

    pub fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    /// The id in the path. `None` if it is not an int64.
    pub fn id(&self) -> Option<i64> {
        self.operation.id_in(self.head.uri.path())
    }

    /// Returns the `Idempotency-Key` for the store, with the function that renders the response to keep under it.
    /// `None` without the header.
    pub fn key<T>(
        &self,
        respond: &(impl Fn(&T) -> StoredResponse + Clone + Send + Sync + 'static),
    ) -> Result<Option<WriteKey<T>>, ApiError> {
        let mut values = self.head.headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(first) = values.next() else { return Ok(None) };
        let key = match values.next() {
            None => IdempotencyKey::parse(first.as_bytes()),
            Some(_) => Err(Invalid("is given more than once".into())),
        };
        let key = key.map_err(|invalid| ApiError::invalid_value("Idempotency-Key", &invalid))?;
        let (operation, path, now) = (self.operation.id(), self.head.uri.path(), self.api.clock.steady());
        let request = KeyedRequest::new(self.account, operation, &key, path, &self.body, now);
        Ok(Some(WriteKey::new(request, respond.clone())))
    }
}
