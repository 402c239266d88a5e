//! The OpenAPI document and what it says of errors and deprecations. Files sent from memory.

pub mod deprecation;
pub(super) mod documented_errors;
pub(super) mod file;
pub(super) mod gzip;
pub mod openapi;
