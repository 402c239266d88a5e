//! An animal store as an HTTP and JSON service.
//!
//! To be read in this order: `domain` (what the store deals in), `store` (where it is kept), `backups`, `keyring`, `http`,
//! `console` and `server` (how it is reached), `relay` (how messages leave), `tls` (on either side), `metrics` (what all of
//! them count), `traces` (with the feature `otlp`), `config` and `cli` (how it is started).

pub mod backups;
pub mod cli;
pub mod config;
pub mod console;
pub mod domain;
pub mod http;
pub mod keyring;
pub mod metrics;
pub mod relay;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tls;
#[cfg(feature = "otlp")]
pub mod traces;
