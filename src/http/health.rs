//! Liveness and readiness checks.

use axum::http::StatusCode;

use super::error::ApiError;
use super::json::{self, Response};
use super::state::Api;
use crate::store::StoreError;

#[derive(serde::Serialize)]
struct Health {
    status: &'static str,
    /// Problems that need the operator's attention but do not affect readiness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

/// Free bytes on the disk of the embedded database below which there is a warning. The write-ahead log alone may take as
/// many. The process stays ready, because reads work on a full disk too.
const DISK_LOW: u64 = 1 << 30;

/// Handles the liveness check. Ignores the database, so that an orchestrator does not kill the process for its outage.
pub fn live() -> Response {
    json::answer_value(StatusCode::OK, &Health { status: "live", warnings: Vec::new() })
}

/// Handles the readiness check: 200 if the database works and the process is not draining.
pub async fn ready(api: &Api) -> Result<Response, ApiError> {
    if api.is_draining() {
        return Err(ApiError::not_ready("it is about to stop", "draining"));
    }
    // Any database error means that requests should go to another process.
    let broken =
        |error: StoreError| ApiError::not_ready("its database does not answer as it should", error.to_string());
    api.store.check().await.map_err(broken)?;
    let disk_low = api.store.disk().is_some_and(|disk| disk.free < DISK_LOW);
    let warnings = if disk_low { vec!["disk_space_low"] } else { Vec::new() };
    Ok(json::answer_value(StatusCode::OK, &Health { status: "ready", warnings }))
}
