//! The parameters of a path.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::console::PageError;

/// As axum's, except that a parameter that is not UTF-8 is reported as not found, on a page.
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
