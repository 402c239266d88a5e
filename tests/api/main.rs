//! The API over real sockets.

mod any_host;
mod audit;
mod auth;
mod broken_responses;
mod cors;
mod deprecation;
mod docs;
mod errors;
mod failing_keys;
mod files;
mod freshness;
mod health;
mod idempotency;
mod input;
mod journal;
mod messages;
mod metrics;
mod order_of_checks;
mod orders;
mod partial_responses;
mod permissions;
mod pets;
mod rate_limit;
mod request_id;
mod server;
#[path = "../service/mod.rs"]
mod service;
mod simulation;
mod tls;
mod transport;
mod well_known;
