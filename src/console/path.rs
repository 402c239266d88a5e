//! What a path's template matches.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::PageError;

/// As axum has it; but what is no UTF-8 names nothing, on a page like any other.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageError> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(matched)) => Ok(Self(matched)),
            Err(_) => Err(PageError::not_found("There is no page at this address.")),
        }
    }
}
