//! Waiting writes of a kind are one statement, waiting reads another.

pub(super) mod reads;
pub(super) mod write;
pub(super) mod writer;
