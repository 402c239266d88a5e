//! Liveness and readiness checks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;

use crate::api::error::ApiError;
use crate::api::response::{self, Response};
use crate::api::state::Api;

/// Free bytes on the disk of the embedded database below which there is a warning. The write-ahead log alone may take as
/// many. The process stays ready, because reads work on a full disk too.
const DISK_LOW: u64 = 1 << 30;

/// Handles the liveness check. Ignores the database, so that an orchestrator does not kill the process for its outage.
pub fn live() -> Response {
    response::json(StatusCode::OK, r#"{"status":"live"}"#)
}

/// Handles the readiness check: 200 if the database works and the process is not draining. Warns of problems that need
/// the operator's attention but do not affect readiness.
pub async fn ready(api: &Api) -> Result<Response, ApiError> {
    if api.draining.load(Ordering::Relaxed) {
        return Err(ApiError::not_ready("it is about to stop", "draining"));
    }
    // Any database error means that requests should go to another process.
    let broken = |cause| ApiError::not_ready("its database does not respond correctly", cause);
    let store = Arc::clone(&api.store);
    let checked = api.workers.check(async move { store.check().await.map(|()| store.disk()) }).await;
    let disk = checked.map_err(broken)?.map_err(|error| broken(error.to_string()))?;
    let body = match disk {
        Some(disk) if disk.free < DISK_LOW => r#"{"status":"ready","warnings":["disk_space_low"]}"#,
        _ => r#"{"status":"ready"}"#,
    };
    Ok(response::json(StatusCode::OK, body))
}
