//! An animal store as an HTTP and JSON service.
//!
//! Reading order: `domain` (values, rules and the JSON of the API), `store` (both databases), `api`, `console` (pages),
//! `relay` (messages to a web server), `telemetry` (log, metrics, traces), `net` (clients and files), `runtime` (time and
//! threads), `config`, `app` (composes the program) and `cli` (commands).

#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod console;
pub mod domain;
pub mod net;
mod redaction;
pub mod relay;
pub mod runtime;
pub mod store;
pub mod telemetry;

/// The commit that the program was built from, with `-dirty` if the checkout had changes. `build.rs` sets it.
pub const COMMIT: &str = env!("COMMIT");

/// The version and the commit.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("COMMIT"), ")");
