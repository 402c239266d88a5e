//! The contract: the OpenAPI document is the one that was agreed, says what the service does, and can be used by
//! the tools that read such documents. Those tools come with `scripts/test`; where one is missing a test fails.

mod browser;
mod golden;
mod linter;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod process;
mod routes;
mod schemathesis;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trial.rs"]
mod trial;
