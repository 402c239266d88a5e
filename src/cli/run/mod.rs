//! Commands that run the service.

pub(super) mod ephemeral;
pub(super) mod healthcheck;
pub(super) mod quickstart;
pub mod serve;
