//! The error type of the API, and its responses.

use std::any::Any;
use std::borrow::Cow;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, DATE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;

use super::request_id::X_REQUEST_ID;
use super::response::{self, Response};
use crate::domain::Invalid;
use crate::store::StoreError;

/// The `code` of an error, which determines its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidJson,
    MissingField,
    InvalidValue,
    UnknownParameter,
    MissingApiKey,
    InvalidApiKey,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    Conflict,
    OperationRemoved,
    PayloadTooLarge,
    UnsupportedMediaType,
    IdempotencyKeyReused,
    RateLimited,
    InternalError,
    Unavailable,
}

/// Each code as it is sent, and its status, in the order of the variants and of the error table in docs/api.md.
const TABLE: [(Code, &str, StatusCode); 18] = [
    (Code::InvalidJson, "invalid_json", StatusCode::BAD_REQUEST),
    (Code::MissingField, "missing_field", StatusCode::BAD_REQUEST),
    (Code::InvalidValue, "invalid_value", StatusCode::BAD_REQUEST),
    (Code::UnknownParameter, "unknown_parameter", StatusCode::BAD_REQUEST),
    (Code::MissingApiKey, "missing_api_key", StatusCode::UNAUTHORIZED),
    (Code::InvalidApiKey, "invalid_api_key", StatusCode::UNAUTHORIZED),
    (Code::Forbidden, "forbidden", StatusCode::FORBIDDEN),
    (Code::NotFound, "not_found", StatusCode::NOT_FOUND),
    (Code::MethodNotAllowed, "method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
    (Code::RequestTimeout, "request_timeout", StatusCode::REQUEST_TIMEOUT),
    (Code::Conflict, "conflict", StatusCode::CONFLICT),
    (Code::OperationRemoved, "operation_removed", StatusCode::GONE),
    (Code::PayloadTooLarge, "payload_too_large", StatusCode::PAYLOAD_TOO_LARGE),
    (Code::UnsupportedMediaType, "unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    (Code::IdempotencyKeyReused, "idempotency_key_reused", StatusCode::UNPROCESSABLE_ENTITY),
    (Code::RateLimited, "rate_limited", StatusCode::TOO_MANY_REQUESTS),
    (Code::InternalError, "internal_error", StatusCode::INTERNAL_SERVER_ERROR),
    (Code::Unavailable, "unavailable", StatusCode::SERVICE_UNAVAILABLE),
];

impl Code {
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::InvalidJson; TABLE.len()];
        let mut position = 0;
        while position < all.len() {
            all[position] = TABLE[position].0;
            assert!(all[position] as usize == position, "the rows have the order of the variants");
            position += 1;
        }
        all
    };

    pub const fn as_str(self) -> &'static str {
        TABLE[self as usize].1
    }

    pub const fn status(self) -> StatusCode {
        TABLE[self as usize].2
    }
}

/// The body of every error.
#[derive(serde::Serialize)]
struct Body<'a> {
    code: &'a str,
    message: &'a str,
    status: u16,
}

/// An error response: a message for the client and, separately, the cause for the log.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    message: Cow<'static, str>,
    cause: Option<Cause>,
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

    /// The error for a field or parameter with an invalid value.
    pub fn invalid_value(name: &str, invalid: &Invalid) -> Self {
        Self::new(Code::InvalidValue, format!("`{name}` {invalid}."))
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

    pub const fn code(&self) -> Code {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub const fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// The body, as it is sent.
    pub fn body(&self) -> Vec<u8> {
        let error = Body { code: self.code.as_str(), message: &self.message, status: self.code.status().as_u16() };
        serde_json::to_vec(&error).expect("two strings and a number always encode")
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
            // The rest of the request is not waited for, so nothing else can follow on this connection.
            Code::RequestTimeout | Code::PayloadTooLarge => Some((CONNECTION, "close")),
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

impl IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        self.answer().into_response()
    }
}
