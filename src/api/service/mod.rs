//! A listener's service: what happens to every request, whoever answers it.

pub(super) mod cors;
pub(super) mod framing;
pub(super) mod listener_service;
pub(crate) mod record;
pub(super) mod telemetry;
