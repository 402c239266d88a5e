//! The API reference in the browser: Swagger UI, bundled, on our own document.

use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{Html, IntoResponse, Response};

use super::error::ApiError;

pub async fn reference() -> Response {
    page("")
}

pub async fn deprecations() -> Response {
    page("")
}

pub async fn asset(Path(_file): Path<String>) -> Result<Response, ApiError> {
    Err(ApiError::route_not_found())
}

fn page(html: &'static str) -> Response {
    Html(html).into_response()
}
