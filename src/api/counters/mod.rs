//! Counts of requests and connections.

pub mod per_minute;
pub(super) mod requests;
