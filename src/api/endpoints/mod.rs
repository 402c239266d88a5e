//! The handlers of operations, with one module per resource, and the documents at fixed paths.

pub(super) mod document;
pub(super) mod health;
pub(super) mod journal;
pub(super) mod messages;
pub(super) mod metrics;
pub(super) mod orders;
pub(super) mod pets;
pub(super) mod well_known;
