//! Error pages.

use std::borrow::Cow;
use std::time::Duration;

use axum::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::api::Cause;
use crate::store::StoreError;

/// An error page. The middleware renders it, because it knows the current user. Until then it is an extension of the
/// response.
#[derive(Clone, Debug)]
pub struct PageError {
    pub status: StatusCode,
    pub title: &'static str,
    pub message: Cow<'static, str>,
    pub cause: Option<Cause>,
    pub retry_after: Option<Duration>,
}

impl PageError {
    fn new(status: StatusCode, title: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, title, message: message.into(), cause: None, retry_after: None }
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Invalid request", message)
    }

    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", message)
    }

    pub fn not_found(message: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    pub fn method_not_allowed() -> Self {
        let message = "This page does not support this request method.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", message)
    }

    pub fn unsupported_media_type() -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported format", "This page accepts only its own form.")
    }

    pub fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", "The form is larger than its fields allow.")
    }

    pub fn timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "Request timeout", "The form did not arrive in time.")
    }

    pub fn internal(cause: Cause) -> Self {
        let message = "An internal error occurred. It has been logged.";
        Self { cause: Some(cause), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong", message) }
    }

    /// `what` the user did too often.
    pub fn too_many(what: &str, wait: Duration) -> Self {
        let minutes = wait.as_secs().div_ceil(60).max(1);
        let later = if minutes == 1 { "a minute".to_owned() } else { format!("{minutes} minutes") };
        let message = format!("There were too many {what}. Try again in {later}.");
        Self { retry_after: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "Too many attempts", message) }
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) | StoreError::SyncFailed(cause) => {
                let message = "The store is temporarily unavailable. Try again in a moment.";
                let retry_after = Some(Duration::from_secs(1));
                let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "Temporarily unavailable", message);
                Self { cause: Some(Cause(cause)), retry_after, ..error }
            }
            StoreError::Refused(why) => {
                Self::new(StatusCode::CONFLICT, "Not possible", format!("Nothing was changed: {why}."))
            }
            StoreError::Failed(cause) => Self::internal(Cause(cause)),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.status, Extension(self)).into_response()
    }
}
