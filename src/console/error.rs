//! Error pages.

use std::borrow::Cow;
use std::time::Duration;

use askama::Template;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::Console;
use super::current_user::CurrentUser;
use super::layout::{NO_SECTION, Site, page};
use super::password_hasher::Busy;
use crate::http::Cause;
use crate::store::StoreError;

/// An error page. The middleware renders it, because it knows the current user. Until then it is an extension of the
/// response.
#[derive(Clone, Debug)]
pub struct PageError {
    status: StatusCode,
    title: &'static str,
    message: Cow<'static, str>,
    cause: Option<Cause>,
    retry_after: Option<Duration>,
}

#[derive(Template)]
#[template(path = "console/error.html")]
struct ErrorPage<'a> {
    site: Site<'a>,
    error: &'a PageError,
}

impl PageError {
    fn new(status: StatusCode, title: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, title, message: message.into(), cause: None, retry_after: None }
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Invalid request", message)
    }

    pub fn forbidden(message: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", message)
    }

    pub fn not_found(message: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "Method not allowed",
            "This page does not support this request method.",
        )
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

    pub fn too_many_attempts(wait: Duration) -> Self {
        let minutes = wait.as_secs().div_ceil(60);
        let later = if minutes == 1 { "a minute".to_owned() } else { format!("{minutes} minutes") };
        let message = format!("There were too many failed attempts. Try again in {later}.");
        Self { retry_after: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "Too many attempts", message) }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn into_page(self, console: &Console, user: &CurrentUser) -> Response {
        let mut response =
            page(self.status, &ErrorPage { site: Site::new(console, user, self.title, NO_SECTION), error: &self });
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(
                RETRY_AFTER,
                wait.as_millis().div_ceil(1_000).max(1).to_string().parse().expect("it is a number"),
            );
        }
        if matches!(self.status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE) {
            // The rest of the request is not read, so the connection cannot be reused.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
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
            StoreError::Failed(cause) | StoreError::Refused(cause) => Self::internal(Cause(cause)),
        }
    }
}

impl From<Busy> for PageError {
    fn from(_: Busy) -> Self {
        // Without a cause, because these rejections are logged together.
        let message = "Too many people are signing in at the same time. Try again in a moment.";
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message) }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
