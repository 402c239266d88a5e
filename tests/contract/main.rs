//! The contract: the OpenAPI document describes what the service does, and the common tools can read it. `scripts/test`
//! installs these tools; a test fails if one is missing.

mod browser;
mod deployment;
mod document;
mod documented;
mod examples;
mod linter;
mod operations;
mod process;
mod schemathesis;
#[path = "../service/mod.rs"]
mod service;
