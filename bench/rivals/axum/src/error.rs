//! Errors, and the responses that report them.

use std::{any::Any, error::Error};

use axum::{
    Json,
    extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
};
use serde::Serialize;

#[derive(Debug)]
pub enum ApiError {
    InvalidJson,
    MissingField(String),
    InvalidValue(String),
    UnknownParameter(String),
    MissingKey,
    InvalidKey,
    NoPet,
    NoPath,
    WrongMethod,
    TooLarge,
    WrongMediaType,
    Internal,
}

#[derive(Serialize)]
struct Body {
    code: &'static str,
    message: String,
    status: u16,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, message) = match &self {
            Self::InvalidJson => (400, "invalid_json", "The body is not a JSON object.".into()),
            Self::MissingField(message) => (400, "missing_field", format!("{message}.")),
            Self::InvalidValue(message) => (400, "invalid_value", format!("{message}.")),
            Self::UnknownParameter(message) => (400, "unknown_parameter", format!("{message}.")),
            Self::MissingKey => (401, "missing_api_key", "Send a key as `Authorization: Bearer <API_KEY>`.".into()),
            Self::InvalidKey => (401, "invalid_api_key", "The API key is not valid here.".into()),
            Self::NoPet => (404, "not_found", "There is no animal with this id.".into()),
            Self::NoPath => (404, "not_found", "This path does not exist.".into()),
            Self::WrongMethod => (405, "method_not_allowed", "This path does not have this method.".into()),
            Self::TooLarge => (413, "payload_too_large", "The body is larger than 64 KiB.".into()),
            Self::WrongMediaType => {
                (415, "unsupported_media_type", "`Content-Type` must be `application/json`.".into())
            }
            Self::Internal => (500, "internal_error", "Something went wrong on our side.".into()),
        };
        let status_code = StatusCode::from_u16(status).expect("the statuses above are valid");
        let mut response = (status_code, Json(Body { code, message, status })).into_response();
        let challenge = match self {
            Self::MissingKey => r#"Bearer realm="petstore""#,
            Self::InvalidKey => r#"Bearer realm="petstore", error="invalid_token""#,
            _ => return response,
        };
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        response
    }
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("database: {error}");
        Self::Internal
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        match rejection {
            JsonRejection::JsonDataError(error) => {
                let Some(error) = source::<serde_path_to_error::Error<serde_json::Error>>(&error) else {
                    return Self::InvalidJson;
                };
                let message = error.inner().to_string();
                if message.starts_with("missing field") {
                    Self::MissingField(message)
                } else if error.path().iter().next().is_none() {
                    Self::InvalidJson
                } else {
                    Self::InvalidValue(error.to_string())
                }
            }
            JsonRejection::MissingJsonContentType(_) => Self::WrongMediaType,
            JsonRejection::BytesRejection(BytesRejection::FailedToBufferBody(error))
                if error.status() == StatusCode::PAYLOAD_TOO_LARGE =>
            {
                Self::TooLarge
            }
            _ => Self::InvalidJson,
        }
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        let message = source::<serde_path_to_error::Error<serde::de::value::Error>>(&rejection)
            .map_or_else(|| rejection.body_text(), ToString::to_string);
        if message.contains("unknown field") { Self::UnknownParameter(message) } else { Self::InvalidValue(message) }
    }
}

impl From<PathRejection> for ApiError {
    fn from(_: PathRejection) -> Self {
        Self::NoPet
    }
}

/// Returns the error of type `E` that caused `error`, if any.
fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    error.downcast_ref().or_else(|| source(error.source()?))
}

/// The response if a handler panics. The panic's message is on stderr.
pub fn panicked(_: Box<dyn Any + Send>) -> Response {
    ApiError::Internal.into_response()
}
