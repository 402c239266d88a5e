//! A call of an operation, as handlers get it.

use std::fmt::Display;

use axum::http::Method;
use axum::http::request::Parts;

use super::caller::Caller;
use super::error::{ApiError, Code};
use super::input::idempotency::IDEMPOTENCY_KEY;
use super::input::query_and_body::{self, RequestBody};
use super::operations::Operation;
use super::state::Api;
use crate::domain::{AccountId, IdempotencyKey, Invalid, KeyedRequest, PageLimit, Role};
use crate::store::{StoredResponse, WriteKey};

/// A call of an operation by an authenticated account.
pub struct Call<'r> {
    pub operation: Operation,
    pub api: &'r Api,
    pub head: &'r Parts,
    pub caller: &'r Caller<'r>,
    pub account: AccountId,
    /// Empty before [`Self::read`], and if the operation only reads.
    pub body: String,
}

impl Call<'_> {
    /// Reads the body of an admitted request. Checks its size and media type first.
    pub async fn read(&mut self, body: &mut impl RequestBody) -> Result<(), ApiError> {
        let headers = &self.head.headers;
        let is_chunked = query_and_body::check_declared_body(headers)?;
        let takes_body = *self.operation.method() == Method::POST;
        if takes_body || is_chunked {
            let bytes = query_and_body::read(headers, body, is_chunked).await?;
            if takes_body {
                // Such an operation has no query parameters.
                query_and_body::parameters(self.query(), [])?;
                let text = String::from_utf8(bytes);
                self.body = text.map_err(|_| ApiError::new(Code::InvalidJson, "The body is not UTF-8."))?;
            }
        }
        Ok(())
    }

    /// The customer whose orders the caller may see and change. `None` for staff, who may see and change all.
    pub fn customer(&self) -> Option<AccountId> {
        (self.caller.role() == Role::Customer).then_some(self.account)
    }

    pub fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    /// The id in the path. `None` if it is not an int64.
    pub fn id(&self) -> Option<i64> {
        self.operation.id_in(self.head.uri.path())
    }

    /// Returns the `Link` to the items after `last` in the list. It may be relative (RFC 8288). `filters` is a part of the
    /// query, from [`filter`](super::input::pagination::filter).
    pub fn next_page(&self, limit: PageLimit, filters: &str, last: impl Display) -> String {
        let base = self.api.addresses.base_url_of(self.operation.listener()).as_reference();
        format!(r#"<{base}{}?limit={}{filters}&after={last}>; rel="next""#, self.operation.api_path(), limit.get())
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
        let key = key.map_err(ApiError::invalid_value("Idempotency-Key"))?;
        let (operation, path, now) = (self.operation.id(), self.head.uri.path(), self.api.clock.steady());
        let request = KeyedRequest::new(self.account, operation, &key, path, &self.body, now);
        Ok(Some(WriteKey::new(request, respond.clone())))
    }
}
