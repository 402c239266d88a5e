//! Whether this process lives, and whether requests should come to it.

use axum::extract::State;
use axum::http::StatusCode;

use super::error::ApiError;
use super::json::{self, Response};
use super::state::Api;

#[derive(serde::Serialize)]
struct Health {
    status: &'static str,
}

/// The process answers; nothing else is looked at, so that a database in trouble does not get it killed.
pub async fn live() -> Response {
    json::answer_value(StatusCode::OK, &Health { status: "live" })
}

/// The database answers, and the process is not about to stop.
pub async fn ready(State(api): State<Api>) -> Result<Response, ApiError> {
    if api.is_draining() {
        return Err(ApiError::unavailable("draining"));
    }
    // Whatever is wrong with the database, requests should go elsewhere until it is mended.
    api.store.check().await.map_err(|error| ApiError::unavailable(error.to_string()))?;
    Ok(json::answer_value(StatusCode::OK, &Health { status: "ready" }))
}
