//! The contract: the OpenAPI document describes what the service does, and the common tools can read it. `scripts/test`
//! installs these tools; a test fails if one is missing.

mod browser;
mod document;
mod documented;
mod examples;
mod linter;
mod operations;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod schemathesis;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trial.rs"]
mod trial;
