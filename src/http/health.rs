//! Whether this process lives, and whether requests should come to it.

use axum::http::StatusCode;

use super::error::ApiError;
use super::json::{self, Response};
use super::state::Api;
use crate::store::StoreError;

#[derive(serde::Serialize)]
struct Health {
    status: &'static str,
    /// What needs somebody's eye, and does not keep requests away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

/// Fewer bytes than this free on the disk of the embedded database are a warning: the write-ahead log alone may take as many.
/// Not ready would be the wrong answer, since reads are answered to the last byte and after it.
const DISK_LOW: u64 = 1 << 30;

/// The process answers; nothing else is looked at, so that a database in trouble does not get it killed.
pub fn live() -> Response {
    json::answer_value(StatusCode::OK, &Health { status: "live", warnings: Vec::new() })
}

/// The database answers, and the process is not about to stop.
pub async fn ready(api: &Api) -> Result<Response, ApiError> {
    if api.is_draining() {
        return Err(ApiError::not_ready("it is about to stop", "draining"));
    }
    // Whatever is wrong with the database, requests should go elsewhere until it is mended.
    let broken =
        |error: StoreError| ApiError::not_ready("its database does not answer as it should", error.to_string());
    api.store.check().await.map_err(broken)?;
    let disk_low = api.store.disk().is_some_and(|disk| disk.free < DISK_LOW);
    let warnings = if disk_low { vec!["disk_space_low"] } else { Vec::new() };
    Ok(json::answer_value(StatusCode::OK, &Health { status: "ready", warnings }))
}
