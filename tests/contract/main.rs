//! The contract: the OpenAPI document describes what the service does, and the common tools can read it. `scripts/test`
//! installs these tools; a test fails if one is missing.

mod clients;
mod deployment;
mod document;
mod documented;
mod examples;
mod guide;
mod linter;
mod operations;
mod packages;
mod postman;
mod process;
mod samples;
mod schemathesis;
#[path = "../service/mod.rs"]
mod service;
mod webhooks;
