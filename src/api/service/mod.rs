//! The service of a listener: it handles every request before and after its response is made.

pub(super) mod cors;
pub(super) mod listener_service;
pub(crate) mod record;
pub(super) mod telemetry;
