//! The error type of the API, and its responses.

use std::any::Any;
use std::borrow::Cow;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, DATE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::response::{self, Response, X_REQUEST_ID};
use crate::domain::{Invalid, names};
use crate::store::StoreError;

names! {
    /// The `code` of an error, which determines its status. In the order of the error table in docs/api.md.
    pub enum Code {
        InvalidJson = "invalid_json",
        MissingField = "missing_field",
        InvalidValue = "invalid_value",
        UnknownParameter = "unknown_parameter",
        MissingApiKey = "missing_api_key",
        InvalidApiKey = "invalid_api_key",
        Forbidden = "forbidden",
        NotFound = "not_found",
        MethodNotAllowed = "method_not_allowed",
        RequestTimeout = "request_timeout",
        Conflict = "conflict",
        OperationRemoved = "operation_removed",
        PayloadTooLarge = "payload_too_large",
        UnsupportedMediaType = "unsupported_media_type",
        IdempotencyKeyReused = "idempotency_key_reused",
        RateLimited = "rate_limited",
        InternalError = "internal_error",
        Unavailable = "unavailable",
    }
}

impl Code {
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidJson | Self::MissingField | Self::InvalidValue | Self::UnknownParameter => {
                StatusCode::BAD_REQUEST
            }
            Self::MissingApiKey | Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::OperationRemoved => StatusCode::GONE,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An error response: a message for the client and, separately, the cause for the log.
#[derive(Debug)]
pub struct ApiError {
    pub code: Code,
    pub message: Cow<'static, str>,
    pub cause: Option<Cause>,
    /// A header beside those that belong to the code.
    header: Option<(&'static str, &'static str)>,
}

/// The cause of a 5xx error. An extension of the response until the listener's service logs it with the request's id.
#[derive(Clone, Debug)]
pub struct Cause(pub String);

impl Cause {
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self(format!("panic: {}", said.unwrap_or("of unknown cause")))
    }
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), cause: None, header: None }
    }

    pub fn with_header(self, name: &'static str, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    fn with_cause(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(Cause(cause.into())), ..self }
    }

    /// Returns a function that makes the error for an invalid field, parameter or header.
    pub fn invalid_value(name: &str) -> impl Fn(Invalid) -> Self {
        move |invalid| Self::new(Code::InvalidValue, format!("`{name}` {invalid}."))
    }

    pub fn route_not_found() -> Self {
        Self::new(Code::NotFound, "This path does not exist.")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(Code::MethodNotAllowed, "This path does not support this method. `Allow` lists those it supports.")
    }

    pub fn internal(cause: impl Into<String>) -> Self {
        let message = "An internal error occurred. The service logged it under the id of this request.";
        Self::new(Code::InternalError, message).with_cause(cause)
    }

    pub fn unavailable(cause: impl Into<String>) -> Self {
        let message = "The service cannot process this request now. Try again later.";
        Self::new(Code::Unavailable, message).with_cause(cause)
    }

    /// The error of the readiness check. `reason` is for the client, `cause` for the log.
    pub fn not_ready(reason: &str, cause: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, format!("The service is not ready: {reason}.")).with_cause(cause)
    }

    /// The body, as it is sent.
    pub fn body(&self) -> Vec<u8> {
        let (code, status) = (self.code.as_str(), self.code.status().as_u16());
        json!({ "code": code, "message": self.message, "status": status }).to_string().into_bytes()
    }

    /// The response, with the headers that belong to the error.
    pub fn answer(self) -> Response {
        let mut response = response::json(self.code.status(), self.body());
        let headers = response.headers_mut();
        let of_code = match self.code {
            // RFC 6750, section 3: no error code where no credential was presented.
            Code::MissingApiKey => Some((WWW_AUTHENTICATE, r#"Bearer realm="petstore""#)),
            Code::InvalidApiKey => Some((WWW_AUTHENTICATE, r#"Bearer realm="petstore", error="invalid_token""#)),
            Code::Unavailable => Some((RETRY_AFTER, "1")),
            _ => None,
        };
        let own = self.header.map(|(name, value)| (HeaderName::from_static(name), value));
        for (name, value) in of_code.into_iter().chain(own) {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }

    /// The bytes of the error as the last response on a connection without a complete request.
    pub fn last_response(self, request_id: HeaderValue) -> Vec<u8> {
        let body = self.body();
        let mut response = self.answer();
        let date = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now().max(UNIX_EPOCH)))
            .expect("a date is visible ASCII");
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, body.len().into());
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(DATE, date);
        headers.insert(X_REQUEST_ID, request_id);
        let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers() {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend(body);
        bytes
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) | StoreError::SyncFailed(cause) => Self::unavailable(cause),
            StoreError::Failed(cause) | StoreError::Refused(cause) => Self::internal(cause),
        }
    }
}

impl From<Infallible> for ApiError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
