//! An animal store as an HTTP and JSON service.
//!
//! Reading order: `domain` (values and rules), `store` (both databases), `representation` (the JSON of the API), `http`
//! (the API), `console` (pages), `server` (connections), `relay` (messages to a web server), `telemetry` (log,
//! metrics, traces), `tls` (both ends), `workers` (the runtime of the store), `config`, `app` (composes the program) and
//! `cli` (commands).

pub mod api;
pub mod app;
pub mod backoff;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod domain;
mod http_client;
mod redaction;
pub mod regular_file;
pub mod relay;
pub mod representation;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod workers;

/// The commit that the program was built from, with `-dirty` if the checkout had changes. `build.rs` sets it.
pub const COMMIT: &str = env!("COMMIT");

/// The version and the commit.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("COMMIT"), ")");
