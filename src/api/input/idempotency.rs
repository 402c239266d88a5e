//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a repeated request is carried out once.

use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, StatusCode};

use crate::api::error::{ApiError, Code};
use crate::api::response::{self, Response};
use crate::store::{Outcome, StoredResponse};

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Makes the response to a write. `executed` renders its result.
pub fn respond<T, R: Into<ApiError>>(
    outcome: Outcome<T, R>,
    executed: impl FnOnce(&T) -> StoredResponse,
) -> Result<Response, ApiError> {
    match outcome {
        Outcome::Executed(value) => Ok(of_stored(executed(&value))),
        Outcome::Replayed(stored) => {
            let mut response = of_stored(stored);
            response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Outcome::Refused(refusal) => Err(refusal.into()),
        Outcome::KeyMismatch => {
            Err(ApiError::new(Code::IdempotencyKeyReused, "This `Idempotency-Key` was used for another request."))
        }
        Outcome::InProgress => Err(in_progress()),
    }
}

/// The error for a repeated request whose first execution has not finished.
pub fn in_progress() -> ApiError {
    ApiError::new(Code::Conflict, "A request with this `Idempotency-Key` is still in progress. Try again later.")
        .with_header("retry-after", "1")
}

fn of_stored(stored: StoredResponse) -> Response {
    let status = StatusCode::from_u16(stored.status).expect("stored responses have a valid status");
    let mut response = response::json(status, stored.body);
    if let Some(location) = stored.location {
        let location = HeaderValue::try_from(location).expect("an address has visible ASCII only");
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
