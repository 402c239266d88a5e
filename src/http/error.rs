//! The error type of the API, and its responses.

use std::any::Any;
use std::borrow::Cow;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, DATE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::json;
use super::request_id::{X_REQUEST_ID, new_request_id};
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

impl Code {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::MissingField => "missing_field",
            Self::InvalidValue => "invalid_value",
            Self::UnknownParameter => "unknown_parameter",
            Self::MissingApiKey => "missing_api_key",
            Self::InvalidApiKey => "invalid_api_key",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::Conflict => "conflict",
            Self::OperationRemoved => "operation_removed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::RateLimited => "rate_limited",
            Self::InternalError => "internal_error",
            Self::Unavailable => "unavailable",
        }
    }

    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidJson | Self::MissingField | Self::InvalidValue | Self::UnknownParameter => {
                StatusCode::BAD_REQUEST
            }
            Self::MissingApiKey | Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
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
    /// True if the request was refused for the content coding of its body.
    is_about_coding: bool,
}

/// The cause of a 5xx error. An extension of the response until the middleware logs it with the request's id.
#[derive(Clone, Debug)]
pub struct Cause(pub String);

impl Cause {
    /// The message of a panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self(format!("panic: {}", said.unwrap_or("of unknown cause")))
    }
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), cause: None, is_about_coding: false }
    }

    /// The error for a field or parameter with an invalid value.
    pub fn invalid_value(name: &str, invalid: &Invalid) -> Self {
        Self::new(Code::InvalidValue, format!("`{name}` {invalid}."))
    }

    pub fn route_not_found() -> Self {
        Self::new(Code::NotFound, "There is nothing at this path.")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(Code::MethodNotAllowed, "This path does not have this method; `Allow` names those it has.")
    }

    pub fn unsupported_content_coding() -> Self {
        let message = "`Content-Encoding` must be `identity` or absent: send the body uncompressed.";
        Self { is_about_coding: true, ..Self::new(Code::UnsupportedMediaType, message) }
    }

    pub fn internal(cause: impl Into<String>) -> Self {
        Self {
            cause: Some(Cause(cause.into())),
            ..Self::new(
                Code::InternalError,
                "Something went wrong on our side; it is in our log under this request's id.",
            )
        }
    }

    pub fn unavailable(cause: impl Into<String>) -> Self {
        Self {
            cause: Some(Cause(cause.into())),
            ..Self::new(Code::Unavailable, "The service can't take this request now. Try again later.")
        }
    }

    /// The error of the readiness check. `reason` is for the client, `cause` for the log.
    pub fn not_ready(reason: &str, cause: impl Into<String>) -> Self {
        Self {
            cause: Some(Cause(cause.into())),
            ..Self::new(Code::Unavailable, format!("The service is not ready: {reason}."))
        }
    }

    pub const fn status(&self) -> StatusCode {
        self.code.status()
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// The body, as it is sent.
    pub fn body(&self) -> Vec<u8> {
        let error = Body { code: self.code.as_str(), message: &self.message, status: self.code.status().as_u16() };
        serde_json::to_vec(&error).expect("two strings and a number always encode")
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
    fn into_response(self) -> Response {
        self.answer().into_response()
    }
}

impl ApiError {
    /// The response, with the headers that belong to the error.
    pub fn answer(self) -> json::Response {
        let mut response = json::answer(self.code.status(), self.body());
        let headers = response.headers_mut();
        match self.code {
            // RFC 6750, section 3: no error code where no credential was presented.
            Code::MissingApiKey => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="petstore""#));
            }
            Code::InvalidApiKey => {
                let challenge = HeaderValue::from_static(r#"Bearer realm="petstore", error="invalid_token""#);
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
            // RFC 9110, section 12.5.3: a 415 names the accepted codings only if the coding is the reason.
            Code::UnsupportedMediaType if self.is_about_coding => {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            Code::Unavailable => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The rest of the request is not waited for, so nothing else can follow on this connection.
            Code::RequestTimeout | Code::PayloadTooLarge => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }

    /// The bytes of the error as the last response on a connection without a complete request.
    pub fn last_response(self) -> Vec<u8> {
        let body = self.body();
        let mut response = self.answer();
        let date = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now().max(UNIX_EPOCH)))
            .expect("a date is visible ASCII");
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, body.len().into());
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(DATE, date);
        headers.insert(X_REQUEST_ID, new_request_id());
        let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers() {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend(body);
        bytes
    }
}
