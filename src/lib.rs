//! An animal store as an HTTP and JSON service.
//!
//! In reading order: what the store deals in, where it is kept, how it is reached, how it is started.

pub mod cli;
pub mod config;
pub mod domain;
pub mod http;
pub mod keyring;
pub mod server;
pub mod store;
pub mod telemetry;
