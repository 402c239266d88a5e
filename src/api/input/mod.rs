//! Strict parsing of what clients send, and `Idempotency-Key`.

pub(super) mod fields;
pub(crate) mod idempotency;
pub(super) mod pagination;
pub(crate) mod query_and_body;
